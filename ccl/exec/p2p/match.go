package p2p

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
)

// matchTable finds the oldest partner of a receive or a message, at a cost that does not depend on
// how many there are: what has the same source and tag waits in one queue. AnySource receives have
// queues of their own. Where two queues have a candidate, the order of posting or arrival decides.
type matchTable struct {
	buckets []*queue // linked by next; a power of two of them
	bits    int
	queues  int
	free    *queue // linked by next
	spare   int    // in free
	any     int    // AnySource receives
	arrived int    // messages
	waiting int    // receives
	clock   uint64 // of posting and arrival
}

// queue has the receives, or the messages, with one source and tag, the oldest first. It is in the
// table only while it has any.
type queue struct {
	source   int
	tag      uint64
	receives requestList
	messages messageList
	next     *queue
}

// fewestBits is the logarithm of the smallest number of buckets.
const fewestBits = 6

func (t *matchTable) bucket(source int, tag uint64) **queue {
	return &t.buckets[(tag*0x9E3779B97F4A7C15+uint64(source)*0xC2B2AE3D27D4EB4F)>>(64-t.bits)]
}

// find returns the queue of a source, or of AnySource, and a tag, or nil if there is none.
func (t *matchTable) find(source int, tag uint64) *queue {
	if t.queues == 0 {
		return nil
	}
	q := *t.bucket(source, tag)
	for q != nil && (q.source != source || q.tag != tag) {
		q = q.next
	}
	return q
}

// findOrAdd is find, which adds the queue if there is none.
func (t *matchTable) findOrAdd(source int, tag uint64) *queue {
	q := t.find(source, tag)
	if q != nil {
		return q
	}
	if t.queues == len(t.buckets) {
		t.grow()
	}
	if q = t.free; q != nil {
		t.free = q.next
		t.spare--
	} else {
		q = new(queue)
	}
	q.source, q.tag = source, tag
	at := t.bucket(source, tag)
	q.next, *at = *at, q
	t.queues++
	return q
}

func (t *matchTable) grow() {
	old := t.buckets
	t.bits = max(t.bits+1, fewestBits)
	t.buckets = make([]*queue, 1<<t.bits)
	for _, q := range old {
		for q != nil {
			next := q.next
			at := t.bucket(q.source, q.tag)
			q.next, *at = *at, q
			q = next
		}
	}
}

// drop removes a queue if it is empty.
func (t *matchTable) drop(q *queue) {
	if q.receives.head != nil || q.messages.head != nil {
		return
	}
	at := t.bucket(q.source, q.tag)
	for *at != q {
		at = &(*at).next
	}
	*at = q.next
	t.queues--
	if q.next = nil; t.spare < keepMessages {
		q.next, t.free = t.free, q
		t.spare++
	}
}

func (t *matchTable) addReceive(r *Request) {
	t.clock++
	t.waiting++
	if r.Peer == AnySource {
		t.any++
	}
	r.order, r.state, r.queue = t.clock, posted, t.findOrAdd(r.Peer, r.Tag)
	r.queue.receives.push(r)
}

func (t *matchTable) removeReceive(r *Request) {
	t.waiting--
	if r.Peer == AnySource {
		t.any--
	}
	r.queue.receives.remove(r)
	t.drop(r.queue)
	r.queue = nil
}

// oldestReceive returns the oldest posted receive with this source (a rank or AnySource) and tag,
// or nil.
func (t *matchTable) oldestReceive(source int, tag uint64) *Request {
	if q := t.find(source, tag); q != nil {
		return q.receives.head
	}
	return nil
}

// takeReceive removes and returns the oldest posted receive that accepts a message, or returns nil.
func (t *matchTable) takeReceive(source int, tag uint64) *Request {
	if t.waiting == 0 {
		return nil
	}
	r := t.oldestReceive(source, tag)
	if t.any > 0 {
		if o := t.oldestReceive(AnySource, tag); r == nil || o != nil && o.order < r.order {
			r = o
		}
	}
	if r != nil {
		t.removeReceive(r)
		r.Source = source
	}
	return r
}

func (t *matchTable) addMessage(m *message) {
	t.clock++
	t.arrived++
	m.order, m.queue = t.clock, t.findOrAdd(m.peer, m.tag)
	m.queue.messages.push(m)
}

func (t *matchTable) removeMessage(m *message) {
	t.arrived--
	m.queue.messages.remove(m)
	t.drop(m.queue)
	m.queue = nil
}

func (t *matchTable) oldestMessage(source int, tag uint64) *message {
	if q := t.find(source, tag); q != nil {
		return q.messages.head
	}
	return nil
}

// all calls f for every queue. f may empty it.
func (t *matchTable) all(f func(*queue)) {
	for _, q := range t.buckets {
		for next := q; q != nil; q = next {
			next = q.next
			f(q)
		}
	}
}

// takeMessage removes and returns the oldest message with a tag from a rank, or from any of the
// ranks, or returns nil.
func (t *matchTable) takeMessage(source int, tag uint64, ranks int) *message {
	if t.arrived == 0 {
		return nil
	}
	var m *message
	if source != AnySource {
		m = t.oldestMessage(source, tag)
	} else {
		for s := range ranks {
			if o := t.oldestMessage(s, tag); o != nil && (m == nil || o.order < m.order) {
				m = o
			}
		}
	}
	if m != nil {
		t.removeMessage(m)
	}
	return m
}

// postReceive matches a receive with an arrived message, or queues it.
func (e *Engine) postReceive(r *Request) {
	m := e.table.takeMessage(r.Peer, r.Tag, len(e.peers))
	if m != nil {
		r.Source = m.peer
		e.join(m, r)
		return
	}
	err := e.lost
	if r.Peer != AnySource {
		err = e.peers[r.Peer].err
	}
	if err != nil {
		e.finish(r, err)
		return
	}
	e.table.addReceive(r)
}

// join matches a receive with an unexpected message.
func (e *Engine) join(m *message, r *Request) {
	p := &e.peers[m.peer]
	switch {
	case m.peer == e.rank:
		e.joinSelf(p, m, r)
	case p.err != nil && !m.whole():
		// The message takes its turn nevertheless; otherwise later messages would overtake it.
		e.finish(r, p.err)
		e.release(p, m)
	case !m.eager:
		e.accept(p, m, r)
	default:
		e.joinEager(p, m, r)
	}
}

// joinEager delivers an unexpected eager message. A part of it may still be in flight.
func (e *Engine) joinEager(p *peer, m *message, r *Request) {
	f := &p.filling
	partial := f.msg == m
	if partial {
		f.msg = nil
	}
	if r.Bytes != m.length {
		e.finish(r, receiveMismatch(p.rank, m.tag, m.length, r.Bytes))
		e.refuseEager(p, m, r.Bytes)
		return
	}
	kernel.Copy(r.bytes(), m.buf[:m.off])
	if partial {
		f.req, r.state = r, filling
	} else {
		e.finish(r, nil)
	}
	e.returnCredit(p, eagerCost(m.length))
	e.release(p, m)
}

// refuseEager queues the answer to the sender that its eager message was too long or too short.
func (e *Engine) refuseEager(p *peer, m *message, expected int) {
	if p.err != nil {
		e.release(p, m)
		return
	}
	m.off = expected
	e.owe(p, m, kindEagerMismatch)
}

// accept answers a request to send that r matches: with a clear-to-send, or with a mismatch if its
// length is wrong.
func (e *Engine) accept(p *peer, m *message, r *Request) {
	if m.head > 0 {
		e.returnCredit(p, eagerCost(m.head))
	}
	if r.Bytes != m.length {
		if p.filling.msg == m {
			p.filling.msg = nil
		}
		e.finish(r, receiveMismatch(p.rank, m.tag, m.length, r.Bytes))
		m.off = r.Bytes // the length that the answer reports
		e.owe(p, m, kindMismatch)
		return
	}
	if m.length == 0 {
		e.finish(r, nil)
	} else {
		m.req, r.msg, r.state = r, m, receiving
		kernel.Copy(r.bytes(), m.buf[:min(m.off, len(m.buf))])
		e.pool.putBuffer(m.buf)
		m.buf = nil
	}
	p.slots.put(m)
	e.owe(p, m, kindClear)
}

// postToSelf matches a message to oneself. Up to the eager limits it is copied and done at once, as
// a message to a peer would be.
func (e *Engine) postToSelf(r *Request) {
	p := &e.peers[e.rank]
	if q := e.table.takeReceive(e.rank, r.Tag); q != nil {
		if q.Bytes != r.Bytes {
			e.finish(r, sendMismatch(e.rank, r.Tag, r.Bytes, q.Bytes))
			e.finish(q, receiveMismatch(e.rank, r.Tag, r.Bytes, q.Bytes))
			return
		}
		kernel.Copy(q.bytes(), r.bytes())
		e.finish(r, nil)
		e.finish(q, nil)
		return
	}
	m := e.pool.message()
	m.peer, m.tag, m.length = e.rank, r.Tag, r.Bytes
	if cost := eagerCost(min(r.Bytes, EagerLimit)); r.Bytes <= EagerLimit && cost <= p.window {
		p.window -= cost
		m.eager, m.off, m.buf = true, r.Bytes, e.pool.buffer(r.Bytes)
		kernel.Copy(m.buf, r.bytes())
		e.finishSend(p, r)
	} else {
		m.req, r.msg, r.state = r, m, waiting
	}
	e.table.addMessage(m)
}

func (e *Engine) joinSelf(p *peer, m *message, r *Request) {
	data := m.buf
	if m.eager {
		p.window += eagerCost(m.length)
	} else {
		data = m.req.bytes()
	}
	if r.Bytes != m.length {
		if !m.eager {
			e.finish(m.req, sendMismatch(e.rank, m.tag, m.length, r.Bytes))
		} else if p.late == nil {
			p.late = sendMismatch(e.rank, m.tag, m.length, r.Bytes)
		}
		e.finish(r, receiveMismatch(e.rank, m.tag, m.length, r.Bytes))
	} else {
		kernel.Copy(r.bytes(), data)
		if !m.eager {
			e.finish(m.req, nil)
		}
		e.finish(r, nil)
	}
	e.release(p, m)
}

func receiveMismatch(source int, tag uint64, sent, expected int) error {
	return fault.Peer(fault.Mismatch, source, "receive of %d bytes with tag %d, but the message has %d bytes; "+
		"send and receive must name the same size", expected, tag, sent)
}

func sendMismatch(dest int, tag uint64, sent, expected int) error {
	return fault.Peer(fault.Mismatch, dest,
		"send of %d bytes with tag %d, but the receive that it matched has %d bytes; "+
			"send and receive must name the same size", sent, tag, expected)
}
