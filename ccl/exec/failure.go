package exec

import (
	"errors"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// lostPeer returns the error of a broken link to a peer that the operation in flight waits for, or
// nil if there is none. Data that arrived before the link broke can still be read.
func (c *Comm) lostPeer() *fault.Error {
	f := &c.frame
	broken := func(peer int) *fault.Error {
		if peer == c.rank || !c.lost[peer] {
			return nil
		}
		return c.pathEnd(peer, c.opts.Links[peer].Err())
	}
	if late, _ := c.lateRank(); late >= 0 {
		return broken(late)
	}
	for lane := range f.lanes {
		if b := f.waitsAt(lane); b != nil && b.Step != nil {
			if err := broken(b.Peer); err != nil {
				return err
			}
		}
	}
	return nil
}

// pathEnd returns why the path to a peer has ended. One that has left counts as lost where another
// rank has lost it before: it may have left since it heard of that.
func (c *Comm) pathEnd(peer int, err error) *fault.Error {
	end := c.named(peer, err)
	if lost := c.losses.how(peer); lost != nil && end.Code == fault.PeerLeft {
		return lost
	}
	return end
}

// named returns a link's error with the peer's rank in it, unless it is this rank that lacks
// something. Where the peer has said why it left in order, that is in it, too.
func (c *Comm) named(peer int, err error) *fault.Error {
	f, ok := err.(*fault.Error)
	if !ok {
		return &fault.Error{Code: fault.PeerLost, Peer: peer, Cause: err}
	}
	parted := fault.Parted(f.Left)
	if !parted && (f.Peer == peer || f.Code == fault.System && f.Peer == fault.NoPeer) {
		return f
	}
	copied := *f
	copied.Peer = peer
	if parted {
		if said, wrong := fault.ParseReport(f.Left, c.rank, c.size); wrong == nil {
			copied.Text = strings.TrimPrefix(f.Text+": "+said.Text, ": ")
		}
	}
	return &copied
}

// Failure returns the error that has ended the Comm, or nil.
func (c *Comm) Failure() *fault.Error {
	return c.stop.Load() // model: none: it only tells
}

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

// breakOff ends the Comm for good: a failed collective leaves channels in a state that no later
// operation could use. The peers are told why. The first reason counts: one look can find several.
func (c *Comm) breakOff(err *fault.Error) {
	if c.broken != nil {
		return
	}
	c.broken = err
	why := c.ending.report
	switch b := c.barred.Load(); {
	case why != nil:
	case b != nil && b.why.Seq <= err.Seq:
		why = b.report
	case err.Code != fault.Closed:
		why = err.Report(c.rank)
		c.bar(err, why)
	case c.given != nil:
		why = c.given.Parting(c.rank)
	}
	c.findLosses()
	c.losses.close(err)
	c.stop.CompareAndSwap(nil, err) // model: none: as advStop, the lock's holder breaks off
	c.withdraw()
	for op := c.head; op != nil; {
		next := op.next
		c.end(op, err)
		op = next
	}
	c.head, c.tail, c.deadlines.turn = nil, nil, 0
	c.finish()
	c.frame.free()
	c.endHeld(err)
	c.p2p.Fail(err)
	for len(c.keyed) > 0 {
		c.endKeyed(c.keyed[0], err)
	}
	clear(c.stirred)
	c.stirred = c.stirred[:0]
	for _, link := range c.opts.Links {
		if link != nil {
			link.Leave(why)
		}
	}
	c.windows.Release()
	c.frame.unrung = false // the links, and the doorbells behind them, may be gone; each bye wakes its peer
}

// mismatch returns the error for a fragment or record that belongs to a different call than this
// rank's.
func (c *Comm) mismatch(peer int, m transport.Meta, want int) error {
	got, bytes := decode(m)
	mine := c.frame.meta(want)
	if m == mine {
		return fault.Peer(fault.Internal, peer, "sent a fragment that does not fit its message of %d bytes", want)
	}
	ours, _ := decode(mine)
	before := ""
	same := m[0] == mine[0] && m[1] == mine[1] && (m[2]^mine[2])&low48 == 0
	if past, ok := c.callAt(uint32(m[0])); ok && uint32(m[0]) != uint32(mine[0]) { // a message of an earlier call
		theirs := pastCall{call: m[0], what: m[1]&^low48 | m[2]&low48}
		if differ(transport.Meta{past.call, past.what}, m) {
			return c.different(peer, past, theirs)
		}
	}
	if same || uint32(m[0]) != uint32(mine[0]) { // the calls that differ are earlier ones, or the plans of this one
		if a, b, ok := c.earlier(peer); ok {
			return c.different(peer, a, b)
		}
		// It may have found that first, and left. Its report is passed on as it is.
		if gone := (*fault.Error)(nil); errors.As(c.opts.Links[peer].Err(), &gone) && len(gone.Left) > 0 {
			if told := c.parseReport(peer, gone.Left); told != nil && told.Code == fault.Mismatch {
				c.learn(peer, gone.Left)
				return told
			}
		}
	}
	if same {
		before = "; either they have run different plans, or made different calls before"
	}
	if bytes == want { // then their number tells nothing
		bytes, want = askLength, askLength
	}
	e := fault.Peer(fault.Mismatch, peer, "this rank called %s, rank %d called %s%s; %s",
		ours.describe(want), peer, got.describe(bytes), before, sameCalls)
	e.Proof = c.proof(m[0] == mine[0] && m[2] == mine[2] && !differ(m, mine))
	return e
}
