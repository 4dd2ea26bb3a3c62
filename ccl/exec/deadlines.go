package exec

import (
	"container/heap"
	"math"
)

// deadlines knows when the operations of a Comm time out.
//
// An operation that waits behind others is not stalled as long as those before it end. So the
// timeout of a collective counts from its turn, that is from when it is the head of the queue, and
// collectives behind it have no deadline yet. Messages may end in any order. Those with the same
// timeout form a line, in the order of posting. The timeout of the first in a line counts from when
// it was posted, and anew from when it has become the first because the one before it ended well.
// The others have no earlier deadline than the first. So however many operations are in flight,
// only the head and one message of each line matter.
//
// "From when" means from the next look of a driver: most operations end before that, and reading
// the clock would take a considerable part of their time.
//
// Keyed operations are in lines, too.
//
// Only the lock's holder uses the fields.
type deadlines struct {
	looks  uint64          // counts the looks at the clock
	turn   int64           // since when the head has its turn; 0 before the first look
	lines  map[int64]*line // by timeout
	recent *line           // the line of the message that was posted last
	stale  []*line         // those that have changed since the last look
	alarms alarms
}

// mostIdleLines is how many lines are kept although they may be empty.
const mostIdleLines = 64

// line is the messages with one timeout, in the order of posting. Messages that were posted between
// two looks were first seen at the same time, so only the first of them keeps it, in Op.seen.
type line struct {
	timeout     int64
	first, last *Op
	fresh       *Op   // the first one that was posted since the last look
	since       int64 // from when the timeout of first counts; 0: from the next look on
	changed     bool  // it is in stale
	at          int64 // when first times out, monotonic nanoseconds
	place       int   // in alarms, from 1; 0 for none
}

// alarms is a heap of lines: that whose first one times out next is the first.
type alarms []*line

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *alarms) Push(x any) {
	a := x.(*line)
	*h = append(*h, a)
	a.place = len(*h)
}

func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.place = 0
	return a
}

// set sets when the first one of a line times out; never if that is math.MaxInt64.
func (h *alarms) set(a *line, at int64) {
	switch a.at = at; {
	case at == math.MaxInt64:
		if a.place > 0 {
			heap.Remove(h, a.place-1)
		}
	case a.place > 0:
		heap.Fix(h, a.place-1)
	default:
		heap.Push(h, a)
	}
}

// add adds a message that was posted.
func (d *deadlines) add(op *Op) {
	op.looked = d.looks
	l := d.recent
	if l == nil || l.timeout != op.timeout {
		if l = d.lines[op.timeout]; l == nil {
			if d.lines == nil {
				d.lines = map[int64]*line{}
			}
			l = &line{timeout: op.timeout}
			d.lines[op.timeout] = l
		}
		d.recent = l
	}
	op.line, op.prev, op.next, op.seen = l, l.last, nil, 0
	if l.last == nil {
		l.first = op
	} else {
		l.last.next = op
	}
	l.last = op
	if l.fresh == nil {
		l.fresh = op
	}
	d.touch(l)
}

func (d *deadlines) touch(l *line) {
	if !l.changed {
		l.changed = true
		d.stale = append(d.stale, l)
	}
}

// remove removes a message that has ended.
func (d *deadlines) remove(op *Op, well bool) {
	l, next := op.line, op.next
	if op == l.fresh {
		l.fresh = next
	} else if next != nil && next != l.fresh && next.seen == 0 {
		next.seen = op.seen
	}
	if next == nil {
		l.last = op.prev
	} else {
		next.prev = op.prev
	}
	if op.prev != nil {
		op.prev.next = next
	} else {
		l.first = next
		switch {
		case well || next == nil || next == l.fresh:
			l.since = 0
		case l.since != 0:
			l.since = max(l.since, next.seen)
		}
		d.touch(l)
	}
	op.line, op.prev, op.next = nil, nil, nil
}

// refresh sets the alarms of the lines that have changed.
func (d *deadlines) refresh() {
	for _, l := range d.stale {
		l.changed = false
		at := int64(math.MaxInt64)
		if l.fresh != nil {
			l.fresh.seen, l.fresh = now(), nil
		}
		if l.first != nil && l.timeout != 0 {
			if l.since == 0 {
				l.since = now()
			}
			at = l.since + l.timeout
		}
		d.alarms.set(l, at)
		if l.first == nil && len(d.lines) > mostIdleLines {
			delete(d.lines, l.timeout)
			if d.recent == l {
				d.recent = nil
			}
		}
	}
	clear(d.stale)
	d.stale = d.stale[:0]
}

// oldest returns the message that was posted first and has not ended, or nil.
func (d *deadlines) oldest() (op *Op) {
	for _, l := range d.lines {
		if l.first != nil && (op == nil || l.first.seq < op.seq) {
			op = l.first
		}
	}
	return op
}

// headDue returns the deadline of the collective in flight, math.MaxInt64 for none.
func (c *Comm) headDue() int64 {
	d := &c.deadlines
	if c.head == nil {
		return math.MaxInt64
	}
	if d.turn == 0 {
		d.turn = now()
	}
	if c.head.timeout == 0 {
		return math.MaxInt64
	}
	return d.turn + c.head.timeout
}

// nextDeadline returns the earliest deadline of the Comm's operations, or the time at which to ask
// the peers, or to warn, if that is earlier.
func (c *Comm) nextDeadline(t int64) int64 {
	d := &c.deadlines
	d.looks++
	d.refresh()
	at := c.headDue()
	if len(d.alarms) > 0 {
		at = min(at, d.alarms[0].at)
	}
	begun := c.run.frame.prog != nil
	ask, warn := int64(math.MaxInt64), int64(math.MaxInt64)
	if begun {
		ask, warn = c.run.blame.Asking.Times(c.run.frame.op.seq, t)
	}
	at = max(min(at, warn), c.run.blame.Inquiry.Until())
	return min(at, ask, c.run.blame.Ending.Time(begun, t))
}

// expire fails operations that are past their deadlines, once an inquiry has found out why. A
// message fails alone; a collective, keyed or not, fails with the whole Comm.
func (c *Comm) expire() {
	d, t := &c.deadlines, now()
	d.refresh()
	late := func() bool { return len(d.alarms) > 0 && d.alarms[0].at <= t }
	if c.headDue() <= t {
		c.run.blame.Inquiry.Outdate(d.turn) // one about an earlier operation
	}
	if !late() && c.headDue() > t || !c.run.blame.Inquiry.Inquire(t) {
		return
	}
	for ; late(); d.refresh() {
		l := d.alarms[0]
		op := l.first
		if op.keyed != nil {
			c.fail(op, op.timedOut())
			return
		}
		if !c.messages.engine.Cancel(&op.req, op.timedOut()) {
			d.alarms.set(l, math.MaxInt64) // it is ending
		}
	}
	if c.headDue() <= t {
		c.fail(c.head, c.head.timedOut())
	}
}
