package p2p

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/transport"
)

// read takes up to readBudget fragments that have arrived from a peer.
func (e *Engine) read(p *peer) (moved bool) {
	for range readBudget {
		payload, meta := p.channel.Look()
		if meta == nil {
			break
		}
		moved = true
		err := e.take(p, payload, meta)
		p.channel.Consume()
		if err != nil {
			e.failPeer(p, err)
			break
		}
	}
	return moved
}

// take processes one fragment. An error means that the peer violates the protocol; in that case
// nothing of the fragment was used.
func (e *Engine) take(p *peer, payload []byte, meta *transport.Meta) error {
	k, tag := parse(meta)
	switch k {
	case kindEager:
		return e.takeEager(p, tag, payload, meta[1], meta[2])
	case kindEagerRest:
		return e.takeEagerRest(p, payload, meta[1])
	case kindData:
		return e.takeData(p, payload, meta[1], meta[2])
	}
	if len(payload) != 0 {
		return p.broken("a fragment of kind %d with %d bytes", k, len(payload))
	}
	switch k {
	case kindRequest:
		return e.takeRequest(p, tag, meta[1], meta[2])
	case kindHead:
		return e.takeHead(p, tag, meta[1], meta[2], headBytes)
	case kindFarHead:
		return e.takeHead(p, tag, meta[1], meta[2], FarLimit)
	case kindClear:
		return e.takeClear(p, meta[1], meta[2])
	case kindMismatch:
		return e.takeMismatch(p, meta[1], meta[2])
	case kindAbort:
		return e.takeAbort(p, meta[2])
	case kindCredit:
		return p.takeCredit(meta[1])
	case kindEagerMismatch:
		return p.takeEagerMismatch(tag, meta[1], meta[2])
	}
	return p.broken("a fragment of unknown kind, meta %#x", *meta)
}

func (e *Engine) takeEager(p *peer, tag uint64, payload []byte, length, credit uint64) error {
	f := &p.filling
	switch {
	case f.active:
		return p.broken("an eager message within another")
	case length > FarLimit, uint64(len(payload)) > length, len(payload) == 0 && length > 0:
		return p.broken("an eager message of %d bytes that begins with %d", length, len(payload))
	}
	n := int(length)
	cost := eagerCost(n)
	if p.held+cost > FarWindow {
		return p.broken("more eager messages than there is credit for")
	}
	if credit != 0 {
		if err := p.takeCredit(credit); err != nil {
			return err
		}
	}
	p.held += cost
	*f = arrival{active: true, length: n}

	switch r := e.table.takeReceive(p.rank, tag); {
	case r == nil:
		m := e.pool.message()
		m.peer, m.tag, m.eager, m.length, m.buf = p.rank, tag, true, n, e.pool.buffer(n)
		e.table.addMessage(m)
		f.msg = m
	case r.Bytes != n:
		e.finish(r, receiveMismatch(p.rank, tag, n, r.Bytes))
		m := e.pool.message()
		m.peer, m.tag, m.eager, m.length = p.rank, tag, true, n
		e.refuseEager(p, m, r.Bytes)
	default:
		f.req, r.state = r, filling
		e.returnCredit(p, cost)
	}
	e.fill(f, payload)
	return nil
}

func (e *Engine) takeEagerRest(p *peer, payload []byte, off uint64) error {
	f := &p.filling
	if !f.active || off != uint64(f.off) || len(payload) == 0 || len(payload) > f.length-f.off {
		return p.broken("%d more bytes at %d of an eager message of which %d of %d have arrived",
			len(payload), off, f.off, f.length)
	}
	e.fill(f, payload)
	return nil
}

// fill adds payload to the eager message or head that is arriving. The caller has checked that it
// fits.
func (e *Engine) fill(f *arrival, payload []byte) {
	switch {
	case f.req != nil:
		kernel.Copy(f.req.bytes()[f.off:], payload)
	case f.msg != nil && f.msg.req != nil: // the head of a message that has a receive
		kernel.Copy(f.msg.req.bytes()[f.off:], payload)
		f.msg.off += len(payload)
	case f.msg != nil:
		if f.msg.buf != nil {
			kernel.Copy(f.msg.buf[f.off:], payload)
		}
		f.msg.off += len(payload)
	}
	f.off += len(payload)
	if f.off == f.length {
		if f.req != nil {
			e.finish(f.req, nil)
		}
		*f = arrival{}
	}
}

func (e *Engine) takeRequest(p *peer, tag uint64, length, id uint64) error {
	if length > maxLength {
		return p.broken("a message of %d bytes", length)
	}
	if p.asked == MaxAnnounced {
		return p.broken("more than %d requests to send without an answer", MaxAnnounced)
	}
	p.asked++
	m := e.pool.message()
	m.peer, m.tag, m.length, m.remote = p.rank, tag, int(length), id
	if r := e.table.takeReceive(p.rank, tag); r != nil {
		e.accept(p, m, r)
	} else {
		e.table.addMessage(m)
	}
	return nil
}

// takeHead takes a request to send whose first head bytes follow.
func (e *Engine) takeHead(p *peer, tag uint64, length, id uint64, head int) error {
	f := &p.filling
	switch {
	case f.active:
		return p.broken("a head within an eager message")
	case length <= uint64(max(head, EagerLimit)) || length > maxLength:
		return p.broken("the head of a message of %d bytes", length)
	case p.asked == MaxAnnounced:
		return p.broken("more than %d requests to send without an answer", MaxAnnounced)
	case p.held+eagerCost(head) > FarWindow:
		return p.broken("more heads than there is credit for")
	}
	p.held += eagerCost(head)
	p.asked++
	m := e.pool.message()
	m.peer, m.tag, m.length, m.remote, m.head = p.rank, tag, int(length), id, head
	*f = arrival{active: true, length: head, msg: m}
	if r := e.table.takeReceive(p.rank, tag); r != nil {
		e.accept(p, m, r)
	} else {
		m.buf = e.pool.buffer(head)
		e.table.addMessage(m)
	}
	return nil
}

func (e *Engine) takeClear(p *peer, remote, id uint64) error {
	m := p.slots.get(id, asking)
	if m == nil {
		return p.broken("a clear-to-send for id %#x, which is not waiting for one", id)
	}
	p.announced--
	m.stage, m.remote = streaming, remote
	switch {
	case m.length == 0:
		if m.req != nil {
			e.finishSend(p, m.req)
		}
		e.release(p, m)
	case m.req == nil:
		e.owe(p, m, kindAbort)
	case p.leaving.msg != m:
		p.stream(m)
	}
	return nil
}

func (e *Engine) takeMismatch(p *peer, expected, id uint64) error {
	m := p.slots.get(id, asking)
	if m == nil || expected > maxLength {
		return p.broken("a length of %d bytes for id %#x, which is not waiting for one", expected, id)
	}
	p.announced--
	if p.leaving.msg == m {
		e.keepCopy(&p.leaving)
	}
	if m.req != nil {
		e.finish(m.req, sendMismatch(p.rank, m.tag, m.length, int(expected)))
	}
	e.release(p, m)
	return nil
}

func (e *Engine) takeData(p *peer, payload []byte, off, id uint64) error {
	m := p.slots.get(id, cleared)
	if m == nil {
		return p.broken("data for id %#x, which is not waiting for any", id)
	}
	if p.filling.msg == m {
		return p.broken("data of a message whose head has not arrived")
	}
	if off != uint64(m.off) || len(payload) == 0 || len(payload) > m.length-m.off {
		return p.broken("%d bytes at %d of a message of which %d of %d have arrived",
			len(payload), off, m.off, m.length)
	}
	switch {
	case m.req == nil:
	case m.length >= e.past:
		copyPast(m.req.bytes()[m.off:], payload)
	default:
		kernel.Copy(m.req.bytes()[m.off:], payload)
	}
	m.off += len(payload)
	if m.off == m.length {
		if m.req != nil {
			e.finish(m.req, nil)
		}
		e.release(p, m)
	}
	return nil
}

func (e *Engine) takeAbort(p *peer, id uint64) error {
	m := p.slots.get(id, cleared)
	if m == nil {
		return p.broken("an abort of id %#x, which is not waiting for data", id)
	}
	if p.filling.msg == m {
		p.filling.msg = nil
	}
	if m.req != nil {
		e.finish(m.req, fault.Peer(fault.Aborted, p.rank,
			"the send of %d bytes with tag %d was cancelled there", m.length, m.tag))
	}
	e.release(p, m)
	return nil
}

func (p *peer) takeCredit(n uint64) error {
	if n == 0 || n > uint64(p.whole-p.window) {
		return p.broken("%d bytes of eager credit, %d are out", n, p.whole-p.window)
	}
	p.window += int(n)
	return nil
}

func (p *peer) takeEagerMismatch(tag uint64, expected, length uint64) error {
	if length > FarLimit || expected > maxLength || eagerCost(int(length)) > p.whole-p.window {
		return p.broken("a mismatch of an eager message of %d bytes, credit for %d is out",
			length, p.whole-p.window)
	}
	p.window += eagerCost(int(length))
	if p.late == nil {
		p.late = sendMismatch(p.rank, tag, int(length), int(expected))
	}
	return nil
}
