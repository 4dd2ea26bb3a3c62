package p2p

import (
	"errors"

	"github.com/goccl/goccl/ccl/fault"
)

// PeerFailed ends the requests that need the peer with err. It first takes what the peer's channel
// still holds. AnySource receives end too, unless a message that has arrived matches: the failed
// peer might have been the sender. A peer that has left in order (fault.PeerLeft) has nothing more
// to send, so they wait for the others, and end with the last of these.
//
// Later requests for the peer fail at once; receives first use up the messages that had arrived
// from it. Later AnySource receives fail where a posted one would have ended, unless a message that
// has arrived matches, and with the same error. A message of which only a part or the request had
// arrived fails the receive that matches it.
func (e *Engine) PeerFailed(peer int, err error) {
	if peer < 0 || peer >= len(e.peers) || peer == e.rank || e.err != nil || e.peers[peer].err != nil {
		return
	}
	if err == nil {
		err = fault.Peer(fault.PeerLost, peer, "")
	}
	p := &e.peers[peer]
	// This loop ends even if the peer lives: without answers the protocol limits what the peer may
	// send.
	for p.channel != nil && p.err == nil && e.read(p) {
	}
	if p.channel != nil {
		p.channel.Flush()
	}
	if p.err == nil {
		e.failPeer(p, err)
	}
	e.report()
}

// failPeer ends everything that involves p. Unexpected messages that arrived whole remain; the
// others remain only to keep their turn.
func (e *Engine) failPeer(p *peer, err error) {
	p.err = err
	if e.lost == nil && (!errors.Is(err, fault.PeerLeft) || e.alone()) {
		e.lost = err
	}
	if l := &p.leaving; l.active {
		if l.copied {
			e.dropCopy(l)
		} else if l.req != nil {
			e.finish(l.req, err)
		} // the request of a head is that of its message, which ends below
		*l = departure{}
	}
	for r := p.queue.pop(); r != nil; r = p.queue.pop() {
		e.finish(r, err)
	}
	for m := p.owed.pop(); m != nil; m = p.owed.pop() {
		e.debts--
		if m.id == 0 {
			e.release(p, m)
		}
	}
	p.ring = messageList{}
	for i := range p.slots.entries {
		if m := p.slots.entries[i].msg; m != nil {
			if m.req != nil {
				e.finish(m.req, err)
			}
			e.release(p, m)
		}
	}
	if p.credit >= creditDue {
		e.debts--
	}
	p.credit = 0
	if p.filling.req != nil {
		e.finish(p.filling.req, err)
	}
	p.filling = arrival{}
	e.failReceives(p.rank, err)
}

// alone reports whether no other rank is left.
func (e *Engine) alone() bool {
	for i := range e.peers {
		if p := &e.peers[i]; p.channel != nil && p.err == nil {
			return false
		}
	}
	return true
}

// failReceives ends the posted receives from source, and those from AnySource if none can come.
func (e *Engine) failReceives(source int, err error) {
	e.table.all(func(q *queue) {
		if q.source != source && (q.source != AnySource || e.lost == nil) {
			return
		}
		for r, next := q.receives.head, (*Request)(nil); r != nil; r = next {
			next = r.next
			e.table.removeReceive(r)
			e.finish(r, err)
		}
	})
}

// Cancel ends one request with err. It reports false if the request is done or not in the engine.
// After Cancel returns, the engine does not touch the request's memory. done is called before it
// returns.
func (e *Engine) Cancel(r *Request, err error) bool {
	switch r.state {
	case idle, finished:
		return false
	case posted:
		e.table.removeReceive(r)
	case filling:
		e.peers[r.Source].filling.req = nil
	case receiving:
		e.orphan(r.msg)
	case announced:
		e.cancelAnnounced(&e.peers[r.Peer], r.msg)
	case queued:
		e.peers[r.Peer].queue.remove(r)
	case leaving:
		e.keepCopy(&e.peers[r.Peer].leaving)
	case sending:
		p, m := &e.peers[r.Peer], r.msg
		p.ring.remove(m)
		m.req = nil
		e.owe(p, m, kindAbort)
	case waiting:
		e.table.removeMessage(r.msg)
		e.release(&e.peers[e.rank], r.msg)
	}
	e.live--
	r.state, r.msg = idle, nil
	e.done(r, err)
	return true
}

// cancelAnnounced detaches the request from a rendezvous of which no data has left yet. Its head
// may be leaving, and the answer may have arrived.
func (e *Engine) cancelAnnounced(p *peer, m *message) {
	if p.leaving.msg == m {
		e.keepCopy(&p.leaving)
	}
	if m.stage == streaming {
		m.req = nil
		e.owe(p, m, kindAbort)
	} else {
		e.orphan(m)
	}
}

// keepCopy lets an eager message or a head leave without its request, from a copy. The peer has
// begun to receive it.
func (e *Engine) keepCopy(l *departure) {
	if l.copied {
		return
	}
	rest := e.pool.buffer(len(l.data))
	copy(rest[l.off:], l.data[l.off:])
	l.data, l.req, l.msg, l.copied = rest, nil, nil, true
	e.debts++
}

// Fail ends every request with err, now and in future. Nothing is sent or read any more.
func (e *Engine) Fail(err error) {
	if e.err != nil {
		return
	}
	if err == nil {
		err = fault.New(fault.Aborted, "")
	}
	e.err = err
	for i := range e.peers {
		if p := &e.peers[i]; p.err == nil {
			e.failPeer(p, err)
		}
	}
	e.table.all(func(q *queue) {
		for m := q.messages.head; m != nil; m = m.next {
			if m.req != nil {
				e.finish(m.req, err)
			}
		}
	})
	e.table = matchTable{clock: e.table.clock}
	e.pool = pool{}
	e.report()
}
