package exec

import (
	"time"

	"github.com/goccl/goccl/ccl/exec/blame"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

// Control takes the control messages of a group's links. It is made before the links are, and then
// given to the Comm.
type Control = blame.Control

// Failure returns the error that has ended the Comm, or nil.
func (c *Comm) Failure() *fault.Error {
	return c.stop.Load() // model: none: it only tells
}

// Check looks whether a peer has ended the group, for a caller who waits for peers by other means
// than operations of the Comm. It returns the error with which the Comm has ended, or nil.
func (c *Comm) Check() *fault.Error {
	if c.stop.Load() == nil && c.lock.CompareAndSwap(0, 1) { // model: none: as a driver that finds nothing to do
		c.look()
		c.unlock()
		c.handOver()
	}
	return c.Failure()
}

// Mourn is Check for a caller that waits for a peer that has died (Gone): the Comm ends for that
// reason, once it is settled who else has died. The caller repeats it.
func (c *Comm) Mourn() *fault.Error {
	c.mourned.Store(true) // model: none: whoever drives sees it in time
	c.opts.Doorbell.Ring()
	return c.Check()
}

// Gone returns why the path to a peer has ended, or nil: it has died or left, but perhaps only
// after it had done all that others wait for.
func (c *Comm) Gone(peer int) *fault.Error {
	if err := c.run.links.All[peer].Err(); err != nil {
		return c.run.blame.Losses.PathEnd(peer, err)
	}
	return nil
}

// Losses returns an error for each rank that is known to be lost.
func (c *Comm) Losses() []*fault.Error { return c.run.blame.Losses.Known() }

// abortSpan is how long the answers to the inquiry of an Abort have to come.
const abortSpan = 100 * time.Millisecond

// Abort ends every operation with err, including operations that other threads wait for, and
// refuses later operations with the same error. Peers see this rank leave the group. If the code is
// fault.Aborted, it takes up to about 0.1 s to add to err what the operations in flight wait for.
func (c *Comm) Abort(err *fault.Error) {
	if err.Code == fault.Aborted {
		err = c.withInquiry(err)
	}
	if c.stop.CompareAndSwap(nil, err) { // model: abortStop
		c.told.Store(true) // model: none: who aborts knows why
	}
	var pace park.Spinner
	for !c.lock.CompareAndSwap(0, 1) { // model: abortLock
		c.opts.Doorbell.Ring()
		pace.Relax()
	}
	c.advance()
	c.unlock()
	c.handOver()
}

// withInquiry adds to the reason of an Abort what the operations in flight wait for: on the other
// ranks they end with it, too.
func (c *Comm) withInquiry(err *fault.Error) *fault.Error {
	if c.pending.Load() == 0 { // model: none: without an operation there is nothing to add
		return err
	}
	found, forget := c.run.blame.Inquiry.Want(abortSpan, false)
	if found == nil {
		return err
	}
	defer forget()
	f, ok := attended(c, found, 3*abortSpan) // the driver itself may be late
	if !ok || f.Text == "" {
		return err
	}
	more := *err
	more.Text += ", while " + f.Text
	return &more
}

// Close leaves the group in order and releases its memory. Operations that have not ended fail with
// fault.Closed. If the group has ended with a mismatch of which no call has told, Close returns it.
func (c *Comm) Close() error {
	c.Abort(fault.New(fault.Closed, "the group is closed"))
	if c.opts.Progress != nil {
		c.opts.Progress.remove(c)
		c.handOver() // an operation that was posted just now still has to be ended
	}
	return c.untold()
}

// groupEnd looks whether the group has to end, and ends it, or the messages that wait for lost
// peers. It reports whether anything has changed.
func (c *Comm) groupEnd(t int64) bool {
	e := &c.run.blame.Ending
	s := c.scene()
	why, death := e.Ends(&s, t)
	if why == nil && !death && len(c.messages.held) == 0 {
		e.Dismiss()
		return false
	}
	if c.advance() { // something is left that arrived before
		return true
	}
	if why == nil {
		all := e.Settle(death, t)
		if all == nil {
			return false
		}
		c.endHeld(all)
		if !death {
			return true
		}
		why = all
	}
	if c.keyed.dead != nil && c.head == nil {
		c.fail(c.keyed.dead, why)
	} else {
		c.failWith(why)
	}
	return true
}

// scene is what package blame has to see to decide that.
func (c *Comm) scene() (s blame.Scene) {
	s = blame.Scene{Mourned: c.mourned.Load() || c.keyed.dead != nil} // model: none: as Mourn
	if f := &c.run.frame; f.prog != nil {
		s.Begun, s.Seq, s.Moves = true, f.op.seq, f.moves
		if peer := c.run.lostPeer(); peer >= 0 {
			s.Lost = c.run.blame.Losses.PathEnd(peer, c.run.links.All[peer].Err())
		}
	}
	switch {
	case c.messages.count > 0 || len(c.keyed.all) > 0:
	case c.head != nil:
		s.Next = c.head.seq
	default: // another thread may have numbered a call that it has not posted yet
		s.Next = c.taken + 1
	}
	return s
}

// failWith ends the Comm, and the operation in flight if there is one.
func (c *Comm) failWith(err *fault.Error) {
	if c.head != nil {
		c.fail(c.head, err)
	} else {
		c.breakOff(err.In(c.label(), ""))
	}
}

// breakOff ends the Comm for good: a failed collective leaves channels in a state that no later
// operation could use. The peers are told why. The first reason counts: one look can find several.
func (c *Comm) breakOff(err *fault.Error) {
	if c.broken != nil {
		return
	}
	c.broken = err
	why := c.run.blame.Ending.BreakOff(err, c.messages.given)
	c.stop.CompareAndSwap(nil, err) // model: none: as advStop, the lock's holder breaks off
	c.run.links.Withdraw(func() { c.poll() })
	for op := c.head; op != nil; {
		next := op.next
		c.end(op, err)
		op = next
	}
	c.head, c.tail, c.deadlines.turn = nil, nil, 0
	c.run.finish()
	c.run.frame.free()
	c.endHeld(err)
	c.messages.engine.Fail(err)
	for len(c.keyed.all) > 0 {
		c.endKeyed(c.keyed.all[0], err)
	}
	c.keyed.clearScheduled()
	c.run.links.Leave(why)
	c.run.windows.Release()
	c.run.frame.unrung = false // the links, and the doorbells behind them, may be gone; each bye wakes its peer
}
