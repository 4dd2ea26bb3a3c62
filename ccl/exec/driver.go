package exec

import (
	"math"
	"time"
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
	f := &c.run.frame
	for c.head != nil {
		op, before := c.head, f.moves
		s, err := failed, error(nil)
		if f.prog == nil {
			if err = c.run.begin(op); err != nil && !isSystem(err) {
				s = refused
			}
		}
		if err == nil {
			s, err = c.run.step(f, f.call(&c.run.exchange))
		}
		moved = moved || f.moves != before || s != blocked
		if s == failed {
			c.fail(op, err)
			return true
		}
		if s == blocked {
			if !c.young {
				c.run.flush()
				if f.moves == before && c.idle%unaskedEvery == 0 {
					if err := c.run.unexpected(); err != nil {
						c.fail(op, err)
						return true
					}
					moved = moved || f.moves != before
				}
			}
			break
		}
		if c.run.timed {
			c.run.endTrial(s)
		}
		c.pop()
		c.end(op, err)
	}
	// Poll now and then for messages that this rank has not asked for: a peer that sends must not
	// wait for this rank to receive while this rank waits for that peer in a collective.
	if !moved && (c.messages.engine.Active() || c.idle%unaskedEvery == 0) || c.messages.count > 0 {
		moved = c.messages.engine.Advance() || moved
	}
	if len(c.keyed.scheduled) > 0 {
		c.advanceKeyed()
		moved = true
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
	c.deadlines.turn = 0
	c.run.finish()
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
	e := op.explain(err)
	if op.ordered() {
		e.Seq = op.seq
	}
	c.breakOff(e)
}

// look makes the driver's other checks, which are for when nothing moves: links that broke,
// deadlines that passed. It reports whether anything has changed.
func (c *Comm) look() bool {
	if c.broken != nil {
		return false
	}
	changed, t := false, now()
	if c.run.links.Closed() {
		c.open()
	}
	for peer := range c.size {
		if err := c.run.links.End(peer); err != nil {
			c.messages.engine.Advance()
			if end := c.run.blame.Ending.LinkEnded(peer, err, t); end != nil {
				c.messages.engine.PeerFailed(peer, end)
			}
			changed = true
		}
	}
	attended, found := c.run.blame.Attend(t)
	if found != nil {
		c.failWith(found)
	}
	if c.groupEnd(t) {
		return true
	}
	changed = changed || attended
	if at := c.nextDeadline(t); at != math.MaxInt64 && at <= t {
		if c.expire(); c.broken == nil && c.run.frame.prog != nil {
			ask, _ := c.run.blame.Asking.Times(c.run.frame.op.seq, t)
			c.run.blame.Warn(t)
			if ask <= t {
				c.run.ask()
			}
		}
		changed = true
	}
	return changed
}

// open has the paths made to the peers that operations wait for.
func (c *Comm) open() {
	f := &c.run.frame
	if f.prog != nil {
		for lane := range f.lanes {
			if b := f.waitsAt(lane); b != nil && b.Step != nil {
				c.openTo(b.Peer)
			}
		}
	}
	for peer := range c.size {
		if c.messages.with[peer] > 0 || c.messages.with[c.size] > 0 {
			c.openTo(peer)
		}
	}
}

func (c *Comm) openTo(peer int) {
	if c.run.links.Connect(peer) {
		c.measure(peer)
	}
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
	if pending(op.state.Load()) { // model: pollState
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
