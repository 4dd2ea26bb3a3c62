package p2p

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// readBudget is the number of fragments that Advance takes from one peer before it turns to the
// next.
const readBudget = 64

// Engine matches the messages of one rank of one group. Only one thread at a time may call its
// methods.
type Engine struct {
	done func(*Request, error)
	rank int

	peers []peer
	table matchTable
	pool  pool

	finished  requestList // ended requests, reported before the public method returns
	reporting bool

	past int // messages of at least this length are received past the caches

	live  int   // requests that are not done
	debts int   // obligations to peers: see Active
	err   error // the error passed to Fail
	lost  error // with which AnySource receives end: of the first peer that failed, or the last that left
}

// peer is what the engine knows about one rank.
type peer struct {
	channel transport.Channel // a message is a series, and no public method leaves one open
	rank    int
	err     error // set if the peer has failed

	// To the peer.
	queue     requestList // sends that have not begun, oldest first
	leaving   departure   // the eager message or head of which a part has left
	owed      messageList // answers to send; message.owe is the kind
	ring      messageList // cleared rendezvous, which take turns
	network   bool        // the channel leads through a network
	limit     int         // of eager messages; EagerLimit or FarLimit
	window    int         // eager credit left
	whole     int         // eager credit in all; EagerWindow or FarWindow
	announced int         // requests to send that have no answer yet
	late      error       // a mismatch of an eager send that was already done
	meta      transport.Meta

	// From the peer.
	filling arrival // the eager message or head of which a part has arrived
	held    int     // eager credit that the peer has used and not got back
	credit  int     // the part of held whose messages are matched, so that it may go back
	asked   int     // the peer's requests to send that have no answer yet

	slots slots // rendezvous in both directions
}

// departure is an eager message, or the head of a rendezvous, that is leaving.
type departure struct {
	active bool
	tag    uint64
	req    *Request // set for an eager message
	msg    *message // set for a head
	copied bool     // after Cancel: req and msg are nil, data is a pooled copy
	data   []byte
	off    int
}

// arrival is an eager message that is arriving: for a receive (req), for an unexpected message
// (msg), or for nothing if both are nil. For the head of a rendezvous msg is set; it knows the
// receive if there is one.
type arrival struct {
	active      bool
	req         *Request
	msg         *message
	off, length int
}

// New makes the engine of a rank. chans[p] is the channel to peer p; chans[rank] is nil because the
// engine matches messages to oneself internally. done is called exactly once for each posted
// request, from Post or Advance, or from the method that ends it (PeerFailed, Cancel, Fail). done
// may call the engine; except for Cancel, requests that those calls end are reported after done has
// returned.
func New(rank int, chans []transport.Channel, done func(*Request, error)) *Engine {
	e := &Engine{done: done, rank: rank, peers: make([]peer, len(chans)), past: pastCaches(0)}
	for i, c := range chans {
		e.peers[i] = peer{rank: i, limit: EagerLimit, window: EagerWindow, whole: EagerWindow}
		if i != rank {
			e.peers[i].channel = c
		}
	}
	return e
}

// SetFar makes longer messages to a peer eager, and the heads of others longer, from now on. The
// peer need not do the same.
func (e *Engine) SetFar(peer int) {
	p := &e.peers[peer]
	p.limit, p.window, p.whole = FarLimit, p.window+FarWindow-p.whole, FarWindow
}

// SetNetwork makes the fragments of messages to a peer longer, since its channel leads through a
// network.
func (e *Engine) SetNetwork(peer int) { e.peers[peer].network = true }

// SetCache sets the size in bytes of this machine's last-level cache; 0 means that it is unknown.
func (e *Engine) SetCache(bytes int64) { e.past = pastCaches(bytes) }

// usualCache is assumed where the size of the cache is unknown.
const usualCache = 32 << 20

// pastCaches returns the length from which on messages are received past the caches, given the size
// of the last-level cache in bytes. Two ranks that send each other messages use four buffers. If
// these do not fit, the received bytes would leave the cache before the receiver reads them, and
// would evict the bytes that are about to be sent.
func pastCaches(cache int64) int {
	if cache <= 0 {
		cache = usualCache
	}
	return int(max(cache/4, 4*EagerLimit))
}

// Post adds a request and does what can be done at once. It never blocks.
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

// refuse returns why a request cannot be taken, or nil. It takes receives from a failed peer,
// because a message may have arrived before the failure.
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
// busy peer does not delay the others; the caller calls it again.
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

// Active reports whether the engine has requests that are not done, or owes its peers credit, data,
// answers, or the settlement of rendezvous whose requests were cancelled. A driver may stop calling
// Advance while Active is false.
func (e *Engine) Active() bool { return e.live > 0 || e.debts > 0 }

// finish ends a request that is no longer in any queue. report calls its done later, when the
// engine is consistent.
func (e *Engine) finish(r *Request, err error) {
	r.state, r.msg, r.err = finished, nil, err
	e.live--
	e.finished.push(r)
}

// report calls done for the ended requests. A call from within done leaves the rest to the outer
// call.
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

// creditDue is how much credit is collected before it is sent back. Withholding less starves no
// sender: without credit a sender sends requests. Eager messages in the other direction carry all
// credit collected so far.
const creditDue = EagerWindow / 2

// returnCredit adds to the credit that may go back to the peer: an eager message or head of the
// peer was matched.
func (e *Engine) returnCredit(p *peer, cost int) {
	if p.err != nil {
		return
	}
	if p.credit < creditDue && p.credit+cost >= creditDue {
		e.debts++
	}
	p.credit += cost
}

// orphan detaches the request from a rendezvous that must be completed without it.
func (e *Engine) orphan(m *message) {
	m.req, m.orphan = nil, true
	e.debts++
}

// release frees a message that is in no list.
func (e *Engine) release(p *peer, m *message) {
	if m.id != 0 {
		p.slots.drop(m.id)
	}
	if m.orphan {
		e.debts--
	}
	e.pool.putMessage(m)
}
