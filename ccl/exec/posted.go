package exec

import (
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
)

// underway is the express by which the head of the queue runs: a posted operation that needs no cursor. Whoever drives goes on with it where it stands;
// before anybody looks for what may be wrong, or sleeps, it is left to the cursor (cede).
type underway struct {
	x     *express // nil: the head is the cursor's, or has not begun
	at    int      // the step to do next; -1 if the slot has not been entered
	quiet bool     // something was said, and nobody rung for
	keen  bool     // the driver stays awake, and rings when it gives up
}

type headway int

const (
	waits  headway = iota
	done           // all steps
	doubts         // a peer says what it should not
)

// postExpress is Post for a call that has an express. It returns nil if the call has none; only then the lock, which the caller has taken, is still
// held. Where nothing else is queued the operation runs before it has an Op to wait in, and most end here at the rank that comes last.
func (c *Comm) postExpress(call *Call) *Op {
	if c.broken != nil {
		return nil
	}
	x := c.shortcut(call)
	if x == nil {
		return nil
	}
	c.take() // what was posted before
	seq := c.number(call)
	op := ops.Get().(*Op)
	alone := c.head == nil
	way := waits
	if alone {
		c.board(x, seq)
		if way = c.travel(call); way == done {
			c.under.x = nil
			op.over(c, seq)
			c.noteEnd(call, nil, false)
			c.unlock()
			c.handOver()
			Completions.add()
			return op
		}
	}
	op.set(c, call, seq)
	op.notify = true
	c.pending.Add(1)
	if alone {
		c.head, c.tail, c.cur.op = op, op, op
		if way == doubts {
			c.cede()
		}
	} else {
		c.tail.next = op
		c.tail = op
	}
	if way == doubts || !alone {
		c.advance()
	} else {
		c.ringForQuiet()
	}
	c.unlock()
	c.handOver()
	return op
}

// over makes op one that has ended well. Atomic stores are dear, and what an Op was before is mostly what it shall be.
func (op *Op) over(c *Comm, seq uint64) {
	op.comm, op.seq, op.source, op.err, op.notify, op.next, op.timeout = c, seq, -1, nil, true, nil, 0
	if op.state.Load() != opDone {
		op.state.Store(opDone)
	}
	if op.urgency.Load() != opOver {
		op.urgency.Store(opOver)
	}
	if op.deadline.Load() != 0 {
		op.deadline.Store(0)
	}
	op.holders.Store(1)
}

// beginExpress is begin for an operation that has an express, and reports whether it has.
func (c *Comm) beginExpress(op *Op) bool {
	if op == &c.alone {
		return false // Run has looked for it
	}
	x := c.shortcut(&op.call)
	if x == nil {
		return false
	}
	c.cur.op = op
	c.board(x, op.seq)
	return true
}

func (c *Comm) board(x *express, seq uint64) {
	c.under.x, c.under.at = x, -1
	x.begin(seq, c.history)
}

// travel does what can be done at once of the express that is under way.
func (c *Comm) travel(call *Call) headway {
	u, w := &c.under, &c.windows
	x := u.x
	if u.at < 0 {
		if w.late(x.turns) >= 0 {
			return waits
		}
		u.at = 0
	}
	turn := int(w.begun % plan.WindowNotices)
	for ; u.at < len(x.steps); u.at++ {
		b := &x.steps[u.at]
		switch b.kind {
		case plan.Signal:
			c.say(b.step, &x.said, call.In)
			u.quiet = true
		case plan.Wait:
			if !w.heard(b.peer, b.nth) {
				return waits
			}
			if b.first && w.notice(b.peer).differs(&x.said, b.lends) {
				return doubts
			}
		case plan.Copy, plan.Get:
			dst, src := b.dst.in(call, turn), b.src[0].in(call, turn)
			if b.both {
				x.both(b.step, dst, b.twin.in(call, turn), src, b.bytes)
				continue
			}
			x.copy(b.step, dst, src, b.bytes)
		default:
			x.reduce(b, call, turn, &c.cur.operands)
		}
	}
	c.history.add(x.digest)
	c.leaveSlot(&x.said)
	u.quiet = false // who leaves rings
	return done
}

// ringForQuiet rings for what was said quietly.
func (c *Comm) ringForQuiet() {
	if c.under.quiet {
		c.under.quiet = false
		c.ring()
	}
}

// ride is run for an operation that is under way by an express, and ends it where it can. It reports whether the queue may go on.
func (c *Comm) ride() (moved, on bool) {
	u := &c.under
	op, at := c.head, u.at
	switch c.travel(&op.call) {
	case done:
		u.x, c.cur.op = nil, nil
		if c.head = op.next; c.head == nil {
			c.tail = nil
		}
		c.end(op, nil)
		return true, true
	case doubts:
		c.cede()
		return true, true
	}
	if !u.keen {
		c.ringForQuiet()
	}
	return u.at != at, false
}

// cede leaves the operation under way to the cursor, at the step where it stands: it can tell what is wrong.
func (c *Comm) cede() {
	u := &c.under
	if u.x == nil {
		return
	}
	x, op := u.x, c.head
	u.x = nil
	c.ringForQuiet()
	c.bindAt(x, op, u.at)
}

// bindAt makes the cursor stand at a step of an express, -1 for before the slot.
func (c *Comm) bindAt(x *express, op *Op, at int) {
	c.cutPieces(x.low, op.in, op.out, op.call.Type.Size())
	if err := c.bind(op, x.low); err != nil {
		c.fail(op, err)
		return
	}
	c.cur.entering = at < 0
	if at >= 0 {
		c.cur.lanes[0].pc = x.steps[at].pc
	}
}

// hasten works awake for op, a message, or as long as the head of the queue is under way by an express, and reports whether op has ended. The
// caller holds the lock.
func (c *Comm) hasten(op *Op, pace *park.Spinner) bool {
	u := &c.under
	message := !op.call.Coll.Valid()
	u.keen = true
	for {
		moved := c.advance() || message && c.poll()
		if op.state.Load() != opPending || !moved && (u.x == nil && !message || !(pace.Turn() && pace.Spinning())) {
			break
		}
		if moved {
			pace.Reset()
		}
	}
	u.keen = false
	c.ringForQuiet()
	return op.state.Load() != opPending
}
