package blame

import (
	"cmp"
	"math"
	"time"
)

// askAfter is the time before a rank first asks. Each further pause is twice as long as the one
// before, and the rank then asks only peers that it has not asked yet.
const askAfter = 50 * time.Millisecond

// Asking is which peers a rank has asked, by fragments, during the operation in flight, and when it
// asks and warns next.
type Asking struct {
	Asked    []bool // by peer
	seq      uint64 // number of the operation
	at       int64  // when to ask next
	pause    int64
	warn     int64 // when to warn that the operation does not end
	after    int64 // how long it will not have ended by then
	patience int64 // how long an operation may take before the first warning
}

func newAsking(o *Options) Asking {
	return Asking{Asked: make([]bool, o.size()), patience: cmp.Or(int64(o.WarnAfter), math.MaxInt64/2)}
}

// Times returns when to ask next, and when to warn, during an operation with a number. The first
// call during an operation starts the wait.
func (a *Asking) Times(seq uint64, t int64) (ask, warn int64) {
	if a.seq != seq {
		a.seq, a.pause, a.after = seq, int64(askAfter), a.patience
		a.at, a.warn = t+a.pause, t+a.after
		clear(a.Asked)
	}
	return a.at, a.warn
}

// Again has the rank ask after the next pause.
func (a *Asking) Again(t int64) {
	a.pause *= 2
	a.at = t + a.pause
}
