package p2p

import "github.com/goccl/goccl/ccl/kernel"

const (
	// flushBudget is how many rounds, of one fragment of each sort, a flush makes before it leaves
	// the rest to the next Advance.
	flushBudget = 16

	// dataFragment is the size of the largest fragment of a message: small enough that the receiver
	// copies it out of the cache and that messages take turns, large enough that the Meta costs
	// nothing.
	dataFragment = 128 << 10

	// headBytes of a rendezvous message leave without waiting for the receive; the answer comes
	// while the sender copies them.
	headBytes = 32 << 10
)

// head returns how long the heads of messages to the peer are.
func (p *peer) head() int {
	if p.limit == FarLimit {
		return FarLimit
	}
	return headBytes
}

// fragmentOf returns the fragment size of a message of n bytes. The receiver copies one fragment
// out while the sender copies the next in. A processor's string copy takes a while to read memory
// at full speed, so messages that do not fit the caches have the longest fragments.
func (p *peer) fragmentOf(n int) int {
	switch {
	case p.network:
		return onNetwork(n)
	case n <= 4<<10:
		return n
	case n <= 16<<10:
		return 8 << 10
	case n < 128<<10:
		return 16 << 10
	case n < 2<<20:
		return 32 << 10
	case n < 8<<20:
		return 64 << 10
	}
	return dataFragment
}

// copy copies data into the space that the channel has lent, and returns how many bytes.
func (p *peer) copy(lent, data []byte) int {
	if p.network {
		return kernel.Copy(lent, data)
	}
	return kernel.CopyAcross(lent, data)
}

// leastFragment is what fragments of a long message have at least, while there is space.
const leastFragment = 32 << 10

// onNetwork is fragmentOf for a peer across a network, where each fragment costs a system call and
// packets of its own.
func onNetwork(n int) int {
	switch {
	case n <= leastFragment:
		return n
	case n < 256<<10: // in two or more, so that one is copied out while the next one arrives
		return min(max((n/2+63)&^63, leastFragment), 48<<10)
	}
	return dataFragment // or what the channel lends
}

// outcome is the result of an attempt to send something.
type outcome uint8

const (
	nothing outcome = iota // nothing to send
	sent
	full // no space in the channel
)

// busy reports whether there may be something to send.
func (p *peer) busy() bool {
	return p.owed.head != nil || p.queue.head != nil || p.ring.head != nil || p.leaving.active || p.credit >= creditDue
}

// flush sends what is pending: answers first, then alternately a fragment of the queue and a
// fragment of a rendezvous.
func (e *Engine) flush(p *peer) (moved bool) {
	for range flushBudget {
		answers := e.sendAnswer(p)
		for answers == sent {
			moved = true
			answers = e.sendAnswer(p)
		}
		if answers == full {
			return moved
		}
		next := e.sendNext(p)
		moved = moved || next == sent
		if next == full {
			return moved
		}
		data := e.sendData(p)
		moved = moved || data == sent
		if data == full || data == nothing && next == nothing {
			return moved
		}
	}
	return moved
}

// control sends a fragment without payload.
func (p *peer) control(k kind, tag uint64, w1, w2 uint64) bool {
	if p.channel.Reserve(0) == nil {
		return false
	}
	p.channel.Publish(0, p.setMeta(k, tag, w1, w2))
	return true
}

// sendAnswer sends the oldest answer that is owed or, if there is none, the credit that is due.
func (e *Engine) sendAnswer(p *peer) outcome {
	m := p.owed.head
	if m == nil {
		return e.sendCredit(p)
	}
	ok, last := false, true
	switch m.owe {
	case kindClear:
		if ok = p.control(kindClear, m.tag, m.id, m.remote); ok {
			m.stage = cleared
			p.asked--
			last = m.length == 0
		}
	case kindMismatch:
		if ok = p.control(kindMismatch, m.tag, uint64(m.off), m.remote); ok {
			p.asked--
		}
	case kindAbort:
		ok = p.control(kindAbort, m.tag, 0, m.remote)
	case kindEagerMismatch:
		if ok = p.control(kindEagerMismatch, m.tag, uint64(m.off), uint64(m.length)); ok {
			p.held -= eagerCost(m.length)
		}
	}
	if !ok {
		return full
	}
	p.owed.remove(m)
	e.debts--
	if last {
		e.release(p, m)
	}
	return sent
}

func (e *Engine) sendCredit(p *peer) outcome {
	if p.credit < creditDue {
		return nothing
	}
	if !p.control(kindCredit, 0, uint64(p.credit), 0) {
		return full
	}
	e.takeCreditDue(p)
	return sent
}

// takeCreditDue returns the credit that is sent to the peer now, and resets it.
func (e *Engine) takeCreditDue(p *peer) int {
	n := p.credit
	if n >= creditDue {
		e.debts--
	}
	p.held -= n
	p.credit = 0
	return n
}

// sendNext sends the next fragment of the eager message or head that is leaving, or begins the
// oldest send in the queue.
func (e *Engine) sendNext(p *peer) outcome {
	if p.leaving.active {
		return e.sendEagerRest(p)
	}
	r := p.queue.head
	if r == nil {
		return nothing
	}
	if r.Bytes <= p.limit && eagerCost(r.Bytes) <= p.window {
		return e.sendEager(p, r)
	}
	if p.announced == MaxAnnounced {
		return nothing
	}
	head := p.head()
	if r.Bytes <= p.limit || eagerCost(head) > p.window {
		head = 0
	}
	return e.sendRequest(p, r, head)
}

func (e *Engine) sendEager(p *peer, r *Request) outcome {
	lent := p.channel.Reserve(p.fragmentOf(r.Bytes))
	if lent == nil || len(lent) == 0 && r.Bytes > 0 {
		return full
	}
	n := p.copy(lent, r.bytes())
	p.channel.Publish(n, p.setMeta(kindEager, r.Tag, uint64(r.Bytes), uint64(e.takeCreditDue(p))))
	p.window -= eagerCost(r.Bytes)
	p.queue.remove(r)
	if n == r.Bytes {
		e.finishSend(p, r)
	} else {
		p.leaving = departure{active: true, tag: r.Tag, req: r, data: r.bytes(), off: n}
		r.state = leaving
	}
	return sent
}

func (e *Engine) sendEagerRest(p *peer) outcome {
	l := &p.leaving
	lent := p.channel.Reserve(min(len(l.data)-l.off, p.fragmentOf(len(l.data))))
	if len(lent) == 0 {
		return full
	}
	n := p.copy(lent, l.data[l.off:])
	p.channel.Publish(n, p.setMeta(kindEagerRest, l.tag, uint64(l.off), 0))
	l.off += n
	if l.off == len(l.data) {
		switch {
		case l.copied:
			e.dropCopy(l)
		case l.msg != nil:
			l.msg.off = l.msg.head
			if l.msg.stage == streaming {
				p.stream(l.msg)
			}
		default:
			e.finishSend(p, l.req)
		}
		*l = departure{}
	}
	return sent
}

// stream adds a rendezvous that was cleared, and whose head has left, to those that take turns.
func (p *peer) stream(m *message) {
	m.req.state = sending
	p.ring.push(m)
}

// dropCopy frees the copy from which a cancelled eager send or head was completed.
func (e *Engine) dropCopy(l *departure) {
	e.pool.putBuffer(l.data)
	e.debts--
}

// sendRequest begins a rendezvous, with a head of so many bytes or, if that is 0, without.
func (e *Engine) sendRequest(p *peer, r *Request, head int) outcome {
	if p.channel.Reserve(0) == nil {
		return full
	}
	m := e.pool.message()
	m.peer, m.tag, m.length, m.req, m.stage, m.head = p.rank, r.Tag, r.Bytes, r, asking, head
	p.slots.put(m)
	k := kindRequest
	switch head {
	case headBytes:
		k = kindHead
	case FarLimit:
		k = kindFarHead
	}
	if head > 0 {
		p.window -= eagerCost(head)
		p.leaving = departure{active: true, tag: r.Tag, msg: m, data: r.bytes()[:head]}
	}
	p.channel.Publish(0, p.setMeta(k, r.Tag, uint64(r.Bytes), m.id))
	p.announced++
	p.queue.remove(r)
	r.msg, r.state = m, announced
	return sent
}

// sendData sends a fragment of the rendezvous whose turn it is.
func (e *Engine) sendData(p *peer) outcome {
	m := p.ring.head
	if m == nil {
		return nothing
	}
	lent := p.channel.Reserve(min(m.length-m.off, p.fragmentOf(m.length)))
	if len(lent) == 0 {
		return full
	}
	n := p.copy(lent, m.req.bytes()[m.off:])
	p.channel.Publish(n, p.setMeta(kindData, m.tag, uint64(m.off), m.remote))
	m.off += n
	p.ring.remove(m)
	if m.off < m.length {
		p.ring.push(m)
		return sent
	}
	e.finishSend(p, m.req)
	e.release(p, m)
	return sent
}

// finishSend ends a send whose bytes have left. It also reports the mismatch of an earlier eager
// send, if there was one.
func (e *Engine) finishSend(p *peer, r *Request) {
	err := p.late
	p.late = nil
	e.finish(r, err)
}
