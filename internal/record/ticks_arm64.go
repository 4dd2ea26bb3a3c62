//go:build !noasm

package record

// ticks reads the counter of the generic timer, which is the same on all cores.
func ticks() uint64
