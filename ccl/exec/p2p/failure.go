package p2p

import "github.com/goccl/goccl/ccl/fault"

// PeerFailed ends the requests that need that peer (AnySource receives too, unless a message that
// arrived matches) with err; requests posted later for that peer fail at once, after what had
// arrived from it was used up. What its channel still holds is taken first. An AnySource receive
// that is posted later fails as well unless a message that arrived matches, with the error of the
// first peer that failed: the peer might have been the one to send. A message of which only a part
// or the request had arrived fails the receive that matches it.
func (e *Engine) PeerFailed(peer int, err error) {
	if peer < 0 || peer >= len(e.peers) || peer == e.rank || e.err != nil || e.peers[peer].err != nil {
		return
	}
	if err == nil {
		err = fault.Peer(fault.PeerLost, peer, "")
	}
	p := &e.peers[peer]
	// This ends even if the peer lives: without answers the protocol lets it send only so much.
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

// failPeer ends everything with p. Unexpected messages that arrived whole remain, and the others as
// marks of their turn.
func (e *Engine) failPeer(p *peer, err error) {
	p.err = err
	if e.lost == nil {
		e.lost = err
	}
	if l := &p.leaving; l.active {
		if l.copied {
			e.dropCopy(l)
		} else if l.req != nil {
			e.finish(l.req, err)
		} // the request of a head is that of its message
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

// failReceives ends the posted receives that name a source, and those that name none.
func (e *Engine) failReceives(source int, err error) {
	for _, lists := range [...]*[1 << tableBits]requestList{&e.table.posted, &e.table.postedAny} {
		for i := range lists {
			for r, next := lists[i].head, (*Request)(nil); r != nil; r = next {
				next = r.next
				if r.Peer == source || r.Peer == AnySource {
					lists[i].remove(r)
					e.table.waiting--
					e.finish(r, err)
				}
			}
		}
	}
}

// Cancel ends one request that is not done with err. It reports false if the request is not in the
// engine. After it returns, the engine does not touch the request's memory. done is called before
// it returns.
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

// cancelAnnounced takes the request from a rendezvous whose data has not begun. Its head may be
// leaving, and the answer may be here.
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

// keepCopy lets an eager message, or a head, leave without its request. The peer has begun to
// receive it.
func (e *Engine) keepCopy(l *departure) {
	if l.copied {
		return
	}
	rest := e.pool.buffer(len(l.data))
	copy(rest[l.off:], l.data[l.off:])
	l.data, l.req, l.msg, l.copied = rest, nil, nil, true
	e.debts++
}

// Fail ends every request with err, now and from now on. Nothing is sent or read any more.
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
	for i := range e.table.unexpected {
		for m := e.table.unexpected[i].head; m != nil; m = m.next {
			if m.req != nil {
				e.finish(m.req, err)
			}
		}
		e.table.unexpected[i] = messageList{}
	}
	e.table.arrived = 0
	e.pool = pool{}
	e.report()
}
