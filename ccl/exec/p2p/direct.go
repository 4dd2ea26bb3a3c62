package p2p

import (
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/internal/park"
)

// fillTurns is the number of times that Direct polls for the next fragment of a message before it
// lets the sender be woken: a microsecond or two.
const fillTurns = 32

// Outcome is how far Direct came.
type Outcome uint8

const (
	Done    Outcome = iota // the request is done, and the engine keeps nothing of it
	Later                  // nothing of it has moved, and nothing is in its way: call Direct again, or Post it
	Begun                  // it is in the engine as if it had been posted: call Direct again, or Advance
	General                // nothing of it has moved, and something is in its way: Post it
)

// Direct performs a send or receive at once if it can: it copies an eager message into the channel,
// or from there into the caller's memory, without any queue. It leaves anything less simple to Post
// and Advance, even in the middle of a message. The result is the same as that of Post, except that
// done is not called when Direct returns Done.
func (e *Engine) Direct(r *Request) Outcome {
	if uint(r.Peer) >= uint(len(e.peers)) || e.err != nil || e.reporting {
		return General
	}
	p := &e.peers[r.Peer]
	switch {
	case r.state == filling:
		return e.fillDirect(p, r)
	case r.state != idle:
		return Begun
	case p.channel == nil || p.err != nil || uint(r.Bytes) > uint(p.limit) || r.Bytes > 0 && r.Data == nil:
		return General
	case r.Send:
		return e.sendDirect(p, r)
	}
	return e.receiveDirect(p, r)
}

// sendDirect sends an eager message if nothing has to be sent before it.
func (e *Engine) sendDirect(p *peer, r *Request) Outcome {
	if p.late != nil || p.leaving.active || p.queue.head != nil || p.owed.head != nil {
		return General
	}
	cost := eagerCost(r.Bytes)
	for p.window < cost {
		payload, meta := p.channel.Look()
		if meta == nil {
			return General
		}
		if k, _ := parse(meta); k != kindCredit || len(payload) != 0 || p.takeCredit(meta[1]) != nil {
			return General
		}
		p.channel.Release()
	}
	piece := p.fragmentOf(r.Bytes)
	lent := p.channel.Reserve(piece)
	if lent == nil || len(lent) < min(piece, leastFragment) {
		return General
	}
	data := r.bytes()
	off := p.copy(lent, data)
	p.channel.Publish(off, p.setMeta(kindEager, r.Tag, uint64(r.Bytes), uint64(e.takeCreditDue(p))))
	p.window -= cost
	for off < len(data) {
		lent = p.channel.Reserve(min(len(data)-off, piece))
		if len(lent) == 0 {
			e.live++
			r.state, r.msg, r.err = leaving, nil, nil
			p.leaving = departure{active: true, tag: r.Tag, req: r, data: data, off: off}
			p.channel.Flush()
			return Begun
		}
		n := p.copy(lent, data[off:])
		p.channel.Publish(n, p.setMeta(kindEagerRest, r.Tag, uint64(off), 0))
		off += n
	}
	p.channel.Flush()
	return Done
}

// receiveDirect takes the next message of a peer if that message is eager and matches r, and no
// receive is older than r.
func (e *Engine) receiveDirect(p *peer, r *Request) Outcome {
	t := &e.table
	if p.filling.active || t.waiting != 0 || t.arrived != 0 && t.oldestMessage(p.rank, r.Tag) != nil {
		return General
	}
	for {
		payload, meta := p.channel.Look()
		if meta == nil {
			return Later
		}
		k, tag := parse(meta)
		if k == kindCredit && len(payload) == 0 && p.takeCredit(meta[1]) == nil {
			p.channel.Release()
			continue
		}
		n, cost := len(payload), eagerCost(r.Bytes)
		if k != kindEager || tag != r.Tag || meta[1] != uint64(r.Bytes) || n > r.Bytes || n == 0 && r.Bytes > 0 ||
			p.held+cost > FarWindow || meta[2] != 0 && p.takeCredit(meta[2]) != nil {
			return General // read reports what is wrong with it, if anything
		}
		kernel.Copy(r.bytes(), payload)
		p.channel.Consume()
		p.held += cost
		e.returnCredit(p, cost)
		r.Source = p.rank
		if n < r.Bytes {
			e.live++
			r.state, r.msg, r.err = filling, nil, nil
			p.filling = arrival{active: true, req: r, off: n, length: r.Bytes}
			return e.fillDirect(p, r)
		}
		e.endDirect(p)
		return Done
	}
}

// fillDirect receives more of the eager message that r has matched.
func (e *Engine) fillDirect(p *peer, r *Request) Outcome {
	f := &p.filling
	for patience := fillTurns; ; {
		payload, meta := p.channel.Look()
		if meta == nil {
			// The rest is in flight. The sender wakes this rank at the end of the message, and need
			// not be woken itself unless it has run out of credit.
			if patience--; patience > 0 {
				park.Pause(1)
				continue
			}
			p.channel.Flush()
			return Begun
		}
		n := len(payload)
		if k, _ := parse(meta); k != kindEagerRest || meta[1] != uint64(f.off) || n == 0 || n > f.length-f.off {
			p.channel.Flush()
			return Begun
		}
		patience = fillTurns
		kernel.Copy(r.bytes()[f.off:], payload)
		p.channel.Consume()
		if f.off += n; f.off == f.length {
			*f = arrival{}
			r.state = idle
			e.live--
			e.endDirect(p)
			return Done
		}
	}
}

// endDirect sends the credit that is due, because the caller may not call Advance for a while, and
// ends the series.
func (e *Engine) endDirect(p *peer) {
	if p.credit >= creditDue && p.owed.head == nil {
		e.sendCredit(p)
	}
	p.channel.Flush()
}
