//go:build !noasm

package record

// ticks reads the time-stamp counter: a third of what the kernel's clock costs. That it runs
// steadily and is the same on all cores is what Linux asks of it, too, before it takes it as a
// clock; see steady.
func ticks() uint64 {
	if !steady {
		return wallTicks()
	}
	return stamp()
}

func stamp() uint64

// invariant reports whether the counter runs at one rate whatever the cores do.
func invariant() bool

var steady = invariant()
