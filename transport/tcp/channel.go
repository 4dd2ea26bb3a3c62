package tcp

import (
	"sync/atomic"

	"github.com/goccl/goccl/transport"
)

// channel is one end of a channel: a queue of fragments out, one in. Three parties touch it at the
// same time: the driver of the group (the methods of transport.Channel), whoever reads the socket
// and whoever writes it. Each counter has one writer; all count fragments since the start and wrap
// around.
type channel struct {
	node    node
	session *session
	index   byte
	out     outQueue
	in      inQueue
}

type outQueue struct {
	ring      [maxFragments]fragment
	memory    buffers       // driver
	lent      []byte        // driver
	lentBytes int           // driver
	reclaimed uint32        // driver: memory taken back
	committed atomic.Uint32 // driver
	started   atomic.Uint32 // writer: frames that it began to write
	freed     atomic.Uint32 // reader: released by the peer
}

type inQueue struct {
	ring       [maxFragments]fragment
	memory     buffers       // reader
	begun      uint32        // reader: headers seen
	reclaimed  uint32        // reader
	arrived    atomic.Uint32 // reader
	released   atomic.Uint32 // driver
	advertised atomic.Uint32 // writer: what the peer was told of released
	due        atomic.Bool   // a credit frame of its own is wanted
}

// Reserve implements transport.Channel.
func (ch *channel) Reserve(n int) []byte {
	q := &ch.out
	if q.lent != nil {
		q.memory.put(q.lent)
		q.lent = nil
	}
	for freed := q.freed.Load(); q.reclaimed != freed; q.reclaimed++ {
		f := &q.ring[q.reclaimed%maxFragments]
		q.memory.put(f.buf)
		f.buf = nil
	}
	if q.committed.Load()-q.reclaimed == maxFragments || ch.session.ended() {
		return nil
	}
	n = min(max(n, 0), maxPayload)
	if q.lent = q.memory.take(n); q.lent == nil {
		return nil
	}
	q.lentBytes = n
	return q.lent[headroom : headroom+n : headroom+n]
}

// Commit implements transport.Channel.
func (ch *channel) Commit(n int, m *transport.Meta) { ch.Publish(n, m) }

// Publish implements transport.Channel. It writes at once: every frame is a call of the kernel
// anyway, and the peer can work on it meanwhile.
func (ch *channel) Publish(n int, m *transport.Meta) {
	q := &ch.out
	if q.lent == nil || n < 0 || n > q.lentBytes {
		panic("tcp: Commit of more than the last Reserve lent")
	}
	at := q.committed.Load()
	f := &q.ring[at%maxFragments]
	f.buf, f.n = q.lent, n
	q.lent = nil
	h := header{kind: kindData, channel: ch.index, session: ch.session.index, length: uint32(n), meta: *m}
	h.put(f.frame())
	q.committed.Store(at + 1)
	c := ch.session.conn
	c.enqueue(&ch.node)
	c.flush()
}

// Flush implements transport.Channel. Nothing is held back.
func (ch *channel) Flush() {}

// Peek implements transport.Channel.
func (ch *channel) Peek() ([]byte, transport.Meta, bool) {
	payload, m := ch.Look()
	if m == nil {
		return nil, transport.Meta{}, false
	}
	return payload, *m, true
}

// Look implements transport.Channel.
func (ch *channel) Look() ([]byte, *transport.Meta) {
	q := &ch.in
	at := q.released.Load()
	if at == q.arrived.Load() || ch.session.closing.Load() {
		return nil, nil
	}
	f := &q.ring[at%maxFragments]
	return f.payload(), &f.meta
}

// Release implements transport.Channel.
func (ch *channel) Release() { ch.Consume() }

// Consume implements transport.Channel.
func (ch *channel) Consume() {
	q := &ch.in
	at := q.released.Load()
	arrived := q.arrived.Load()
	if at == arrived {
		panic("tcp: Release without a fragment")
	}
	q.released.Store(at + 1)
	if arrived-q.advertised.Load() < creditStep {
		return // it travels with the next fragment, or later
	}
	q.due.Store(true)
	c := ch.session.conn
	c.enqueue(&ch.node)
	c.flush()
}

// credit takes over what the peer says it has released; false if that cannot be.
func (q *outQueue) credit(total uint32) bool {
	freed := q.freed.Load()
	if total-freed > q.started.Load()-freed {
		return false
	}
	q.freed.Store(total)
	return true
}

// begin finds the place of the next fragment of n bytes; false if the peer had no credit for it.
func (q *inQueue) begin(n int, m transport.Meta) bool {
	released := q.released.Load()
	for ; q.reclaimed != released; q.reclaimed++ {
		f := &q.ring[q.reclaimed%maxFragments]
		q.memory.put(f.buf)
		f.buf = nil
	}
	if q.begun-released >= maxFragments {
		return false
	}
	buf := q.memory.take(n)
	if buf == nil {
		return false
	}
	q.ring[q.begun%maxFragments] = fragment{buf, n, m}
	q.begun++
	return true
}

// rest is the memory of the fragment begun last.
func (q *inQueue) rest() []byte { return q.ring[(q.begun-1)%maxFragments].payload() }
