package exec

import (
	"time"

	"github.com/goccl/goccl/ccl/exec/blame"
)

// drainSpan is how long the answers to the inquiry of a Drain, which gives up what has not ended,
// have to come.
const drainSpan = 700 * time.Millisecond

// Drain drives c until all posted operations have ended and their data has left this process, but
// for at most d. It reports whether there is nothing left to wait for. It waits for receives, which
// may never get a message, only as long as receives allows. After doubt it makes an inquiry, and
// does not wait for a rank that does not answer. At the end it does what Confirm does.
//
// If toCome is not nil, it reports whether somebody else has operations that are not yet posted,
// but for receives if butReceives is set.
func (c *Comm) Drain(d, receives, doubt time.Duration, toCome func(butReceives bool) bool) bool {
	begin, nap := now(), shortestNap
	var found <-chan blame.Outcome
	for {
		waited := time.Duration(now() - begin)
		butReceives := waited >= receives
		more := toCome != nil && toCome(butReceives)
		if !more && c.drained(butReceives) && c.Confirm() {
			return true
		}
		if waited >= d {
			return false
		}
		if found == nil && waited >= doubt {
			var forget func()
			if found, forget = c.run.blame.Inquiry.Want(drainSpan, more); found != nil {
				defer forget()
			}
		}
		if found != nil {
			c.run.blame.Wake()
			select {
			case f := <-found:
				if f.Silent {
					return true
				}
				found, doubt = nil, waited+time.Second
			default:
			}
		}
		ended := Completions.Count()
		if c.workOnce() {
			nap = shortestNap
			continue
		}
		Completions.Wait(ended, min(nap, d-waited))
		nap = min(nap+nap/8, longestNap)
	}
}

// drained reports whether no operation is pending, or only receives if butReceives is set, and all
// data has left this process. A Comm that has failed has nothing left to wait for.
func (c *Comm) drained(butReceives bool) bool {
	if c.stop.Load() != nil { // model: none: Drain only looks, and looks again after a nap
		return true
	}
	receives := c.messages.receives.Load()
	pending := uint64(c.pending.Load()) // model: none: as above
	if pending != 0 && (!butReceives || pending != receives || receives != c.messages.receives.Load()) {
		return false
	}
	if c.lock.Load() != 0 && c.waiting.Load() == 0 { // model: none: as above
		return false // a thread is in the middle of a short call, which is never pending
	}
	return c.run.links.Flushed()
}
