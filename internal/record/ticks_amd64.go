//go:build !noasm

package record

// ticks reads the time-stamp counter, at a third of the cost of the kernel's clock. The counter
// must run steadily and be the same on all cores; Linux requires the same before it uses it as a
// clock. See steady.
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
