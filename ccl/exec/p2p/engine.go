package p2p

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// readBudget is how many fragments of one peer an Advance takes before it turns to the next peer.
const readBudget = 64

// Engine matches the messages of one rank of one group. Its methods are called by one thread at a
// time.
type Engine struct {
	done func(*Request, error)
	rank int

	peers []peer
	table matchTable
	pool  pool

	finished  requestList // done, to be reported before the public method returns
	reporting bool

	past int // messages from this length on are received past the caches

	live  int   // requests that are not done
	debts int   // things owed to peers: see Active
	err   error // of Fail
	lost  error // of the first peer that failed: what AnySource receives end with
}

// peer is what the engine knows of one rank.
type peer struct {
	channel transport.Channel // a message is a series, which no public method leaves open
	rank    int
	err     error // the peer has failed

	// To the peer.
	queue     requestList // sends that have not begun, oldest first
	leaving   departure   // the eager message that has left in part
	owed      messageList // answers to be sent: message.owe says which
	ring      messageList // rendezvous that were cleared, taking turns
	window    int         // eager credit left
	announced int         // requests to send without an answer
	late      error       // a mismatch of an eager send that was done already
	meta      transport.Meta

	// From the peer.
	filling arrival // the eager message that has arrived in part
	held    int     // eager credit that the peer has used and not got back
	credit  int     // the part of held that is matched and may go back
	asked   int     // the peer's requests to send without an answer

	slots slots // rendezvous in both directions
}

// departure is an eager message or the head of a rendezvous on its way out.
type departure struct {
	active bool
	tag    uint32
	req    *Request // of an eager message
	msg    *message // of a head
	copied bool     // after Cancel: there is neither, data is a pooled copy
	data   []byte
	off    int
}

// arrival is an eager message on its way in, to a receive, to an unexpected message, or (neither)
// to nowhere. Of the head of a rendezvous it has the message, which knows the receive if there is
// one.
type arrival struct {
	active      bool
	req         *Request
	msg         *message
	off, length int
}

// New makes the engine of a rank. chans[p] is the channel to peer p; chans[rank] is nil, messages
// to oneself are matched inside. done is called exactly once for each posted request, from Post or
// Advance, or from the method that ends it (PeerFailed, Cancel, Fail). It may call the engine;
// requests that those calls end are reported after it has returned.
func New(rank int, chans []transport.Channel, done func(*Request, error)) *Engine {
	e := &Engine{done: done, rank: rank, peers: make([]peer, len(chans)), past: pastCaches(0)}
	for i, c := range chans {
		e.peers[i] = peer{rank: i, window: EagerWindow}
		if i != rank {
			e.peers[i].channel = c
		}
	}
	return e
}

// SetCache says how large the last cache of this machine is; 0 means that nobody knows.
func (e *Engine) SetCache(bytes int64) { e.past = pastCaches(bytes) }

// usualCache is taken where nobody knows.
const usualCache = 32 << 20

// pastCaches is the length from which on messages are received past the caches, of which the last
// has so many bytes. Two ranks that send each other messages have four buffers; when these do not
// fit, the received bytes would leave the cache before anybody reads them, and push out of it what
// is about to be sent.
func pastCaches(cache int64) int {
	if cache <= 0 {
		cache = usualCache
	}
	return int(max(cache/4, 4*EagerLimit))
}

// Post adds a request. It never blocks and does what can be done at once.
func (e *Engine) Post(r *Request) {
	if r.state != idle {
		panic("p2p: a request was posted that is not done")
	}
	e.live++
	r.msg, r.err = nil, nil
	if !r.Send {
		r.Source = AnySource
	}
	switch err := e.refuse(r); {
	case err != nil:
		e.finish(r, err)
	case !r.Send:
		e.postReceive(r)
	case r.Peer == e.rank:
		e.postToSelf(r)
	default:
		p := &e.peers[r.Peer]
		r.state = queued
		p.queue.push(r)
		e.flush(p)
		p.channel.Flush()
	}
	e.report()
}

// refuse returns why a request cannot be taken, or nil. Receives from a failed peer are taken:
// something may have arrived.
func (e *Engine) refuse(r *Request) error {
	switch {
	case e.err != nil:
		return e.err
	case r.Bytes < 0 || r.Bytes > 0 && r.Data == nil:
		return fault.New(fault.Invalid, "a point-to-point request of %d bytes at address %p", r.Bytes, r.Data)
	case r.Peer == AnySource && !r.Send:
		return nil
	case r.Peer < 0 || r.Peer >= len(e.peers):
		return fault.New(fault.Invalid, "there is no rank %d, the group has ranks 0 to %d", r.Peer, len(e.peers)-1)
	case r.Peer == e.rank:
		return nil
	case e.peers[r.Peer].channel == nil:
		return fault.Peer(fault.Invalid, r.Peer, "the group was made without a point-to-point channel to this rank")
	case r.Send:
		return e.peers[r.Peer].err
	}
	return nil
}

// Advance moves everything that can move without waiting, and reports whether anything did. It
// takes a bounded number of fragments from each peer and sends each a bounded number, so that one
// busy peer does not keep the others waiting; callers call it again.
func (e *Engine) Advance() bool {
	if e.err != nil {
		return false
	}
	moved := false
	for i := range e.peers {
		p := &e.peers[i]
		if p.channel == nil || p.err != nil {
			continue
		}
		if e.read(p) {
			moved = true
		}
		if p.busy() && e.flush(p) {
			moved = true
		}
		p.channel.Flush()
	}
	e.report()
	return moved
}

// Active reports whether the engine has requests that are not done, or owes its peers anything
// (credit, data): answers, and the rendezvous of cancelled requests that are not settled yet. A
// driver may stop calling Advance while it is false.
func (e *Engine) Active() bool { return e.live > 0 || e.debts > 0 }

// finish ends a request that is in no queue any more. Its done is called by report, when the engine
// is consistent.
func (e *Engine) finish(r *Request, err error) {
	r.state, r.msg, r.err = finished, nil, err
	e.live--
	e.finished.push(r)
}

// report calls done. A call from within done leaves the rest to the outer one.
func (e *Engine) report() {
	if e.reporting {
		return
	}
	e.reporting = true
	for r := e.finished.pop(); r != nil; r = e.finished.pop() {
		err := r.err
		r.state, r.err = idle, nil
		e.done(r, err)
	}
	e.reporting = false
}

// owe queues an answer to the peer of m.
func (e *Engine) owe(p *peer, m *message, what kind) {
	m.owe = what
	p.owed.push(m)
	e.debts++
}

// creditDue is how much credit is collected before it is sent back. Withholding less starves
// nobody: without credit a sender sends requests. Eager messages the other way carry what there is.
const creditDue = EagerWindow / 2

// giveBack notes that an eager message of the peer was matched.
func (e *Engine) giveBack(p *peer, cost int) {
	if p.err != nil {
		return
	}
	if p.credit < creditDue && p.credit+cost >= creditDue {
		e.debts++
	}
	p.credit += cost
}

// orphan takes the request from a rendezvous that has to be finished without it.
func (e *Engine) orphan(m *message) {
	m.req, m.orphan = nil, true
	e.debts++
}

// release forgets a message that is in no list.
func (e *Engine) release(p *peer, m *message) {
	if m.id != 0 {
		p.slots.drop(m.id)
	}
	if m.orphan {
		e.debts--
	}
	e.pool.putMessage(m)
}
