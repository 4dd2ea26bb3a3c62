package park

import (
	"sync/atomic"
	"time"
)

// share is what yields have shown about this process's cores. If a yield returns at once, no other
// thread took the core: spinning is as good for the others, and sees the event sooner. If a yield
// takes as long as a switch to another process and back, peers share the core and need it. If it
// takes as long as a time slice, the core went to a thread that computes, which a woken sleeper
// would have interrupted: measured on Linux 6.18, a wait of 16 µs asleep took 1400 µs by
// yielding.
var share sharing

type sharing struct {
	core       atomic.Int32 // 0 to 2×shared: how much others need this core
	lost       atomic.Int64 // nanoseconds that a yield loses to threads that compute, a moving average
	sleepUntil atomic.Int64 // until this time waits do not yield
	patience   atomic.Int64 // the length of the last such span; 0 if yields behave normally
}

const (
	shared     = 128 // at this value and above, waits do not spin blindly
	coreWeight = 8
	lostWeight = 16
	// Several time slices in a row: sleeping costs ranks that share a core up to 150 µs.
	mostLost     = int64(250 * time.Microsecond)
	computeSpan  = int64(600 * time.Microsecond) // near a time slice; peers that work between waits take less
	leastPatient = int64(5 * time.Millisecond)
	mostPatient  = int64(100 * time.Millisecond) // the yield that then tests again is 2 % of that
)

// bareYield is how long a yield takes when no other thread takes the core; 0 until it has been
// measured.
var bareYield atomic.Int64

const (
	leastBareYield = int64(150 * time.Nanosecond)
	mostBareYield  = int64(600 * time.Nanosecond)
)

// presume sets the initial assumption, before any yields.
func (x *sharing) presume(crowded bool) {
	if crowded {
		x.core.Store(2 * shared)
	} else {
		x.core.Store(0)
	}
	x.lost.Store(0)
	x.sleepUntil.Store(0)
	x.patience.Store(0)
}

// blindly reports whether waits begin by spinning. Where peers share the core, spinning hinders
// them. Threads that compute there lose next to nothing, and spinning makes waits short again once
// they have stopped.
func (x *sharing) blindly() bool { return x.core.Load() < shared || x.patience.Load() != 0 }

// Shares reports whether yields have shown lately that other threads need the core of this process.
// Such a process waits little: it has no time that it could use for what is only useful later.
func Shares() bool { return share.core.Load() >= shared }

// yielded records a yield that was called at from and returned at to.
func (x *sharing) yielded(from, to int64) {
	took, bare := to-from, bareYield.Load()
	if bare == 0 {
		bare = mostBareYield
	}
	old := x.core.Load()
	target := int32(0)
	if took >= 2*bare {
		target = 2 * shared
	}
	if next := old + (target-old)/coreWeight; next != old {
		x.core.Store(next)
	}
	x.lose(took, to)
}

// lose tracks what yields lose. Where that is more than sleeping costs, waits sleep at once for a
// while; then one yield shows whether this is still so.
func (x *sharing) lose(took, to int64) {
	lost := x.lost.Load()
	switch {
	case took >= computeSpan:
		lost += (took - lost) / lostWeight
	case lost == 0:
		return
	default:
		lost -= lost/lostWeight + 1
	}
	if lost < mostLost/2 {
		x.patience.Store(0)
	}
	if took >= computeSpan && lost >= mostLost {
		lost = mostLost
		patience := min(max(2*x.patience.Load(), leastPatient), mostPatient)
		x.patience.Store(patience)
		x.sleepUntil.Store(to + patience)
	}
	x.lost.Store(max(lost, 0))
}
