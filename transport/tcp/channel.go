package tcp

import (
	"sync/atomic"

	"github.com/goccl/goccl/transport"
)

// channel is one end of a channel: a queue of outgoing fragments and one of incoming fragments.
// Three threads may use it at the same time: the driver of the group (the methods of
// transport.Channel), the thread that reads the socket and the thread that writes it. Each counter
// has one writer. All counters count fragments since the start and wrap around.
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
	reclaimed uint32        // driver: fragments whose memory was taken back
	committed atomic.Uint32 // driver
	started   atomic.Uint32 // writer: fragments that it began to write
	freed     atomic.Uint32 // reader: fragments released by the peer
}

type inQueue struct {
	ring       [maxFragments]fragment
	memory     buffers       // reader
	begun      uint32        // reader: fragments whose header has arrived
	reclaimed  uint32        // reader
	arrived    atomic.Uint32 // reader
	released   atomic.Uint32 // driver
	advertised atomic.Uint32 // writer: the value of released last sent to the peer
	due        atomic.Bool   // a separate credit frame is wanted
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

// Publish implements transport.Channel. It writes at once: every frame needs a system call anyway,
// and the peer can work on the fragment meanwhile.
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

// Flush implements transport.Channel. It does nothing, because Publish and Consume hold nothing
// back.
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
		return // credit travels with the next fragment, or later
	}
	q.due.Store(true)
	c := ch.session.conn
	c.enqueue(&ch.node)
	c.flush()
}

// credit adopts the number of fragments that the peer reports as released. It returns false if that
// number is impossible.
func (q *outQueue) credit(total uint32) bool {
	freed := q.freed.Load()
	if total-freed > q.started.Load()-freed {
		return false
	}
	q.freed.Store(total)
	return true
}

// begin reserves the place of the next fragment of n bytes. It returns false if the peer had no
// credit for it.
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

// rest returns the payload memory of the fragment begun last.
func (q *inQueue) rest() []byte { return q.ring[(q.begun-1)%maxFragments].payload() }
