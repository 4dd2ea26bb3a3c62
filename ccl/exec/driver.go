package exec

import (
	"math"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/exec/p2p"
)

// advance does everything that can be done without waiting, and reports whether there was anything.
// The caller holds the lock.
func (c *Comm) advance() bool {
	moved := false
	c.idle++
	c.take()
	if why := c.stop.Load(); why != nil && c.broken == nil { // model: advStop
		c.breakOff(why)
		return true
	}
	f := &c.frame
	for c.head != nil {
		op, before := c.head, f.moves
		s, err := failed, error(nil)
		if f.prog == nil {
			if err = c.begin(op); err != nil && !isSystem(err) {
				s = refused
			}
		}
		if err == nil {
			s, err = c.step(f, f.call(&c.exchange))
		}
		moved = moved || f.moves != before || s != blocked
		if s == failed {
			c.fail(op, err)
			return true
		}
		if s == blocked {
			if !c.young {
				c.flush()
				if f.moves == before && c.idle%unaskedEvery == 0 {
					if err := c.unexpected(); err != nil {
						c.fail(op, err)
						return true
					}
					moved = moved || f.moves != before
				}
			}
			break
		}
		c.pop()
		c.end(op, err)
	}
	// Poll now and then for messages that this rank has not asked for: a peer that sends must not
	// wait for this rank to receive while this rank waits for that peer in a collective.
	if !moved && (c.p2p.Active() || c.idle%unaskedEvery == 0) || len(c.p2pOps) > 0 || len(c.keyed) > 0 {
		moved = c.p2p.Advance() || moved
	}
	if len(c.keyed) > 0 {
		moved = c.advanceKeyed() || moved
	}
	return moved
}

// unaskedEvery is the number of idle turns between two checks for input that this rank has not
// asked for.
const unaskedEvery = 16

// advanceAll is advance with these checks made in any case. It is for the last check before a
// driver sleeps.
func (c *Comm) advanceAll() bool {
	c.idle = unaskedEvery - 1
	return c.advance()
}

func (c *Comm) pop() {
	c.head = c.head.next
	if c.head == nil {
		c.tail = nil
	}
	c.finish()
}

// finish forgets the operation in flight.
func (c *Comm) finish() {
	c.frame.finish()
	c.exchange.forget()
}

// call returns the call of the program in flight.
func (f *frame) call(x *exchange) *Call {
	if f.counting {
		return &x.call
	}
	return &f.op.call
}

// fail ends an operation that has begun, and with it the Comm.
func (c *Comm) fail(op *Op, err error) {
	c.breakOff(op.explain(err))
}

// look makes the driver's other checks, which are for when nothing moves: links that broke,
// deadlines that passed. It reports whether anything has changed.
func (c *Comm) look() bool {
	if c.broken != nil {
		return false
	}
	changed := false
	if c.closed > 0 {
		c.open()
	}
	for peer, link := range c.opts.Links {
		if link == nil || c.lost[peer] {
			continue
		}
		if err := link.Err(); err != nil {
			c.lost[peer] = true
			c.p2p.Advance()
			named := c.named(peer, err)
			if c.ending.hear(named, c.rank, c.size) {
				c.weigh(c.ending.told)
			}
			if c.ending.told == nil { // otherwise the messages end with the group, for the reason that the peer gave
				c.p2p.PeerFailed(peer, named)
			}
			changed = true
		}
	}
	changed = c.attend() || changed
	if err := c.groupEnd(); err != nil {
		if !c.advance() { // nothing is left that arrived before
			c.failWith(err)
		}
		return true
	}
	if at := c.nextDeadline(); at != math.MaxInt64 && at <= now() {
		if c.expire(); c.broken == nil && c.frame.prog != nil {
			c.warn()
			if c.askTime() <= now() {
				c.ask()
			}
		}
		changed = true
	}
	return changed
}

// open has the paths made to the peers that operations wait for.
func (c *Comm) open() {
	f := &c.frame
	if f.prog != nil {
		for lane := range f.lanes {
			if b := f.waitsAt(lane); b != nil && b.Step != nil {
				c.openTo(b.Peer)
			}
		}
	}
	for _, op := range c.keyed {
		for _, peer := range op.keyed.awaited() {
			c.openTo(peer)
		}
	}
	for _, op := range c.p2pOps {
		if op.req.Peer != p2p.AnySource {
			c.openTo(op.req.Peer)
			continue
		}
		for peer := range c.unopened {
			c.openTo(peer)
		}
	}
}

func (c *Comm) openTo(peer int) {
	if link := c.unopened[peer]; link != nil && link.Open() {
		c.unopened[peer] = nil
		c.closed--
		c.measure(peer)
	}
}

// nextDeadline returns the earliest deadline of the Comm's operations, or the time at which to ask
// the peers, or to warn, if that is earlier.
func (c *Comm) nextDeadline() int64 {
	at := int64(math.MaxInt64)
	for op := c.head; op != nil; op = op.next {
		if d := op.due(); d != 0 {
			at = min(at, d)
		}
	}
	for _, ops := range [2][]*Op{c.p2pOps, c.keyed} {
		for _, op := range ops {
			if d := op.due(); d != 0 {
				at = min(at, d)
			}
		}
	}
	if c.frame.prog != nil {
		at = min(at, c.warnTime())
	}
	if c.inquiry.underWay() {
		at = max(at, c.inquiry.until)
	}
	if c.frame.prog != nil {
		at = min(at, c.askTime(), c.ending.at())
	}
	return at
}

func (op *Op) past(t int64) bool {
	d := op.due()
	return d != 0 && d <= t
}

// expire fails operations that are past their deadlines, once an inquiry has found out why. A
// message fails alone; a collective fails with the whole Comm.
func (c *Comm) expire() {
	t := now()
	if !c.overdue(t) || !c.inquire(inquirySpan) {
		return
	}
	for i := 0; i < len(c.p2pOps); i++ {
		if op := c.p2pOps[i]; op.past(t) && c.p2p.Cancel(&op.req, c.timedOut(op)) {
			i-- // messageDone has removed it
		}
	}
	for op := c.head; op != nil; op = op.next {
		if op.past(t) {
			c.fail(op, c.timedOut(op))
			return
		}
	}
	for _, op := range c.keyed {
		if op.past(t) {
			c.fail(op, c.timedOut(op))
			return
		}
	}
}

// overdue reports whether an operation is past its deadline.
func (c *Comm) overdue(t int64) bool {
	for op := c.head; op != nil; op = op.next {
		if op.past(t) {
			return true
		}
	}
	past := func(op *Op) bool { return op.past(t) }
	return slices.ContainsFunc(c.p2pOps, past) || slices.ContainsFunc(c.keyed, past)
}

// Expedite has op driven without delay although perhaps no thread is inside Wait for it: its caller
// sleeps elsewhere until op ends, and does not drive.
func (op *Op) Expedite() {
	if op.urgency.CompareAndSwap(opCalm, opExpedited) { // model: expediteMark
		op.comm.urgent.Add(1) // model: expediteCount
		op.comm.handOver()
	}
}

// calm undoes Expedite, before op ends.
func (op *Op) calm() {
	if op.urgency.Swap(opOver) == opExpedited { // model: endUrgency
		op.comm.urgent.Add(-1) // model: endUrgent
	}
}

// Poll is Done, but first advances op's Comm if no other thread drives it. It never waits.
func (op *Op) Poll() (bool, error) {
	if op.state.Load() == opPending { // model: pollState
		op.comm.workOnce()
	}
	return op.Done()
}

// workOnce advances c if no other thread drives it, and reports whether anything moved.
func (c *Comm) workOnce() bool {
	if !c.lock.CompareAndSwap(0, 1) { // model: pollLock
		return false
	}
	moved := c.advance() || c.poll() || c.look()
	c.unlock()
	c.handOver()
	return moved
}

// SetDeadline moves an operation's deadline to d from now, if that is earlier.
func (op *Op) SetDeadline(d time.Duration) {
	c := op.comm
	at := now() + int64(d)
	if old := op.due(); old == 0 || at < old {
		op.deadline.Store(at)
		c.opts.Doorbell.Ring()
		c.handOver()
	}
}

func (c *Comm) poll() bool {
	moved := false
	for _, p := range c.opts.Pollers {
		moved = p.Poll() || moved
	}
	return moved
}

// until returns the time left until a deadline; it is negative if there is no deadline.
func until(at int64) time.Duration {
	if at == math.MaxInt64 {
		return -1
	}
	return max(0, time.Duration(at-now()))
}
