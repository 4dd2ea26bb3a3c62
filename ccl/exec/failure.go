package exec

import (
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// peerError says why nothing arrives from a peer: nil while its link works, or while fragments are left.
func (c *Comm) peerError(peer int, ch transport.Channel) error {
	err := c.opts.Links[peer].Err()
	if err == nil {
		return nil
	}
	if _, _, ok := ch.Peek(); ok {
		return nil // it arrived just before the end
	}
	return c.named(peer, err)
}

// named makes a link's error one that carries the peer's rank.
func (c *Comm) named(peer int, err error) error {
	f, ok := err.(*fault.Error)
	if !ok {
		return &fault.Error{Code: fault.PeerLost, Peer: peer, Cause: err}
	}
	if f.Peer == peer {
		return f
	}
	copied := *f
	copied.Peer = peer
	return &copied
}

// timedOut names the ranks that an operation was waiting for.
func (c *Comm) timedOut(op *Op) error {
	if op != c.cur.op {
		text := "its turn did not come"
		peer := fault.NoPeer
		if !op.call.Coll.Valid() {
			text, peer = "no matching call on the other side", op.call.Root
		} else if c.cur.op != nil {
			text = fmt.Sprintf("behind %s, which has not ended", c.cur.op.describe())
		}
		return &fault.Error{Code: fault.Timeout, Peer: peer, Text: text}
	}
	if err := c.lateError(); err != nil {
		return err
	}
	text, first := "", fault.NoPeer
	named := map[int]bool{}
	for lane, st := range c.cur.lanes {
		s := c.cur.waitsAt(lane)
		if s == nil || named[s.peer] {
			continue
		}
		named[s.peer] = true
		if text != "" {
			text += ", "
		}
		switch s.kind {
		case plan.Wait:
			text += fmt.Sprintf("rank %d did not signal (wait, step %d.%d, flag %d)", s.peer, lane, st.pc, s.channel)
		case plan.Recv, plan.RecvReduce:
			text += fmt.Sprintf("rank %d did not send (%v, step %d.%d, %d bytes so far)", s.peer, s.kind, lane, st.pc, st.moved)
		default:
			text += fmt.Sprintf("rank %d did not take (%v, step %d.%d, %d bytes so far)", s.peer, s.kind, lane, st.pc, st.moved)
		}
		if first == fault.NoPeer {
			first = s.peer
		}
	}
	if c.cur.counting {
		text += ", while the lengths of blocks were exchanged"
	}
	return &fault.Error{Code: fault.Timeout, Peer: first, Text: text + "; is it in the same call?"}
}

// Abort ends every operation with err, those that other threads wait for too, and refuses later ones with it. Peers
// see this rank leave the group.
func (c *Comm) Abort(err *fault.Error) {
	c.stop.CompareAndSwap(nil, err)
	var pace park.Spinner
	for !c.lock.CompareAndSwap(0, 1) {
		c.opts.Bell.Ring()
		pace.Relax()
	}
	c.advance()
	c.unlock()
	c.handOver()
}

// Close leaves the group in order and gives its memory back. Operations that are not done fail with fault.Closed.
func (c *Comm) Close() error {
	c.Abort(fault.New(fault.Closed, "the group is closed"))
	if c.opts.Progress != nil {
		c.opts.Progress.remove(c)
		c.handOver() // an operation that was posted just now still has to be ended
	}
	return nil
}

// breakOff ends the Comm for good: a failed collective leaves channels in a state that no later operation could use.
func (c *Comm) breakOff(err *fault.Error) {
	c.broken = err
	c.stop.CompareAndSwap(nil, err)
	for op := c.head; op != nil; {
		next := op.next
		c.end(op, err)
		op = next
	}
	c.head, c.tail = nil, nil
	c.under = underway{}
	c.cur.unbind()
	c.cur.freeTmp()
	c.p2p.Fail(err)
	for _, link := range c.opts.Links {
		if link != nil {
			link.Close()
		}
	}
	c.windows.own.Release()
}
