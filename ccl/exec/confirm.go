package exec

import (
	"time"

	"github.com/goccl/goccl/ccl/exec/blame"
	"github.com/goccl/goccl/ccl/fault"
)

// Confirm looks whether the peers have called what this rank has, where its last call could end
// without them, and reports whether there is nothing left to wait for. If they have not, the Comm
// ends with a mismatch. Call it until it returns true; that takes the time of a message to the
// peers and back, at most until those that are late have made the same call, or a second.
func (c *Comm) Confirm() bool { return c.confirm(true) }

// ConfirmNow is Confirm for as long as peers need to answer: it waits for none that is late. While
// operations are pending it does nothing. It returns the mismatch, unless a call has told of it.
func (c *Comm) ConfirmNow() error {
	if c.pending.Load() != 0 { // model: none: what is posted now is confirmed another time
		return nil
	}
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for end := now() + int64(blame.ConfirmSpan); !c.confirm(false) && now() < end; {
		<-tick.C
	}
	return c.untold()
}

// Told notes that a caller has heard why the Comm has ended, from the layer above.
func (c *Comm) Told() { c.told.Store(true) } // model: none: it only tells

// untold returns the mismatch with which the Comm has ended, unless a call has told of it.
func (c *Comm) untold() error {
	if why := c.Failure(); why != nil && why.Code == fault.Mismatch && !c.told.Swap(true) { // model: none: tells
		return why
	}
	return nil
}

func (c *Comm) confirm(late bool) bool {
	if c.opts.Control == nil || c.size == 1 || c.stop.Load() != nil { // model: none: it looks again
		return true
	}
	if !c.lock.CompareAndSwap(0, 1) { // model: none: as a driver that finds nothing to do
		return false
	}
	over := !c.run.calls.Unmet
	if !over {
		c.look()
		if over = c.broken != nil; !over {
			var found *fault.Error
			if over, found = c.run.blame.Comparison.Confirm(late, now()); found != nil {
				c.failWith(found)
			}
		}
	}
	c.unlock()
	c.handOver()
	return over
}
