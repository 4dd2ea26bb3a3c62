package p2p

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
)

const tableBits = 6

// matchTable finds the oldest partner of a receive or a message. Receives that name a source, and
// unexpected messages, are hashed by (source, tag); AnySource receives are hashed by tag. Where
// several lists have a candidate, the order of posting or arrival decides.
type matchTable struct {
	posted, postedAny [1 << tableBits]requestList
	unexpected        [1 << tableBits]messageList
	arrived           int    // messages in unexpected
	waiting           int    // receives in posted and postedAny
	clock             uint64 // of posting and arrival
}

func bucket(source int, tag uint64) uint32 {
	return (uint32(tag^tag>>32)*0x9E3779B1 + uint32(source)*0x85EBCA77) >> (32 - tableBits)
}

func (t *matchTable) receives(source int, tag uint64) *requestList {
	if source == AnySource {
		return &t.postedAny[bucket(0, tag)]
	}
	return &t.posted[bucket(source, tag)]
}

func (t *matchTable) addReceive(r *Request) {
	t.clock++
	t.waiting++
	r.order, r.state = t.clock, posted
	t.receives(r.Peer, r.Tag).push(r)
}

func (t *matchTable) removeReceive(r *Request) {
	t.waiting--
	t.receives(r.Peer, r.Tag).remove(r)
}

// oldestReceive returns the oldest posted receive with this source (a rank or AnySource) and tag,
// or nil.
func (t *matchTable) oldestReceive(source int, tag uint64) *Request {
	for r := t.receives(source, tag).head; r != nil; r = r.next {
		if r.Peer == source && r.Tag == tag {
			return r
		}
	}
	return nil
}

// takeReceive removes and returns the oldest posted receive that accepts a message, or returns nil.
func (t *matchTable) takeReceive(source int, tag uint64) *Request {
	r := t.oldestReceive(source, tag)
	if o := t.oldestReceive(AnySource, tag); r == nil || o != nil && o.order < r.order {
		r = o
	}
	if r != nil {
		t.removeReceive(r)
		r.Source = source
	}
	return r
}

func (t *matchTable) messages(source int, tag uint64) *messageList {
	return &t.unexpected[bucket(source, tag)]
}

func (t *matchTable) addMessage(m *message) {
	t.clock++
	m.order = t.clock
	t.arrived++
	t.messages(m.peer, m.tag).push(m)
}

func (t *matchTable) removeMessage(m *message) {
	t.arrived--
	t.messages(m.peer, m.tag).remove(m)
}

func (t *matchTable) oldestMessage(source int, tag uint64) *message {
	for m := t.messages(source, tag).head; m != nil; m = m.next {
		if m.peer == source && m.tag == tag {
			return m
		}
	}
	return nil
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
	e.giveBack(p, eagerCost(m.length))
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
		e.giveBack(p, eagerCost(m.head))
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
