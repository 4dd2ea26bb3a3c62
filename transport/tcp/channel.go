package tcp

import (
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/transport"
)

// channel is one end of a channel: a queue of outgoing fragments and one of incoming fragments.
// Three threads may use it at the same time: the driver of the group (the methods of
// transport.Channel), the thread that reads and the thread that writes the sockets. Each counter
// has one writer. All counters count fragments since the start and wrap around.
type channel struct {
	node    node
	session *session
	index   byte
	out     outQueue
	in      inQueue
}

type outQueue struct {
	ring      ring          // driver
	memory    buffers       // driver
	lent      []byte        // driver
	lentBytes int           // driver
	scale     uint32        // driver: of the ring
	granted   atomic.Uint32 // reader: the scale that the peer allows
	reclaimed uint32        // driver: fragments whose memory was taken back
	committed atomic.Uint32 // driver
	started   atomic.Uint32 // writer: fragments that it began to write; the reader sets it anew after a break
	freed     atomic.Uint32 // reader: fragments released by the peer
	stuck     stuck         // guarded by pair.mu
}

// stuck is the fragment that the peer lacked when the last connection was made.
type stuck struct {
	lacks bool
	next  uint32    // its number
	since time.Time // when a connection broke since when it has been lacking
}

// resumed notes what the peer has, in place of a connection that broke at a time; again is how much
// is sent again.
func (x *stuck) resumed(arrived, again uint32, broke time.Time) {
	if !stays(x.lacks, x.next, arrived, again) {
		x.since = broke
	}
	x.lacks, x.next = again > 0, arrived
}

type inQueue struct {
	ring       ring          // reader
	memory     buffers       // reader
	scale      atomic.Uint32 // reader: of the ring
	reclaimed  uint32        // reader
	arrived    atomic.Uint32 // reader: fragments that have arrived without a gap
	released   atomic.Uint32 // driver
	advertised atomic.Uint32 // writer: the value of released last sent to the peer
	long       uint32        // reader: long fragments
	look       time.Time     // reader: when it may look at the path again
	looks      int           // reader: since when queue counts
	queue      time.Duration // reader: the shortest of the smoothed round trips of these looks
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
		f := q.ring.at(q.reclaimed)
		q.memory.put(f.buf)
		f.buf = nil
	}
	if ch.session.ended() {
		return nil
	}
	n = min(max(n, 0), int(ch.session.pair.longest.Load()))
	for {
		if q.committed.Load()-q.reclaimed < q.ring.size() {
			q.lent = q.memory.take(n, q.scale)
		}
		if q.lent != nil {
			q.lentBytes = n
			return q.lent[headroom : headroom+n : headroom+n]
		}
		if !ch.widen() {
			return nil
		}
	}
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
	f := q.ring.at(at)
	f.buf, f.n = q.lent, n
	q.lent = nil
	h := header{kind: kindData, channel: ch.index, length: uint32(n), number: at, meta: *m}
	h.put(f.frame())
	q.committed.Store(at + 1)
	ch.session.pair.enqueue(&ch.node)
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
	f := q.ring.at(at)
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
	if at+1-q.advertised.Load() < creditStep {
		return // credit travels with the next fragment, or later
	}
	q.due.Store(true)
	ch.session.pair.enqueue(&ch.node)
}

// credit adopts the number of fragments that the peer reports as released. It returns false if the
// number is impossible.
func (q *outQueue) credit(total uint32, several bool) bool {
	now, possible := credits(total, q.freed.Load(), q.started.Load(), several)
	if possible {
		q.freed.Store(now)
	}
	return possible
}

// resume makes the writer begin with the first fragment that has not reached the peer. It returns
// how many are sent again, or false if the peer's number is impossible.
func (q *outQueue) resume(arrived uint32) (again uint32, possible bool) {
	if again, possible = rewinds(arrived, q.freed.Load(), q.started.Load()); possible {
		q.started.Store(arrived)
	}
	return again, possible
}

// begin reserves the place of a fragment of n bytes.
func (q *inQueue) begin(number uint32, n int, m *transport.Meta) (place int) {
	if q.ring.size() == 0 {
		q.ring.grow(0, 0)
	}
	released := q.released.Load()
	for ; q.reclaimed != released; q.reclaimed++ {
		f := q.ring.at(q.reclaimed)
		q.memory.put(f.buf)
		f.buf = nil
	}
	f := q.ring.at(number)
	if place = placeOf(number, q.arrived.Load(), released, q.ring.size(), f.full); place != placed {
		return place
	}
	if f.buf != nil { // a part of it has arrived over a socket that broke
		q.memory.put(f.buf)
		f.buf = nil
	}
	buf := q.memory.take(n, q.scale.Load())
	if buf == nil {
		return refused
	}
	*f = fragment{buf: buf, n: n, meta: *m}
	return placed
}

// unbroken returns how many fragments have arrived without a gap, and forgets those behind the gap:
// the peer sends them again, and must not learn of their release before it has.
func (q *inQueue) unbroken() uint32 {
	arrived := q.arrived.Load()
	for n := range q.ring.size() {
		q.ring.at(arrived + n).full = false
	}
	return arrived
}

// payload returns the memory of a fragment that has begun.
func (q *inQueue) payload(number uint32) []byte { return q.ring.at(number).payload() }

// done publishes a fragment that has arrived completely, and those behind it that came earlier.
func (q *inQueue) done(number uint32) {
	q.ring.at(number).full = true
	at := q.arrived.Load()
	for q.ring.at(at).full {
		q.ring.at(at).full = false
		at++
	}
	q.arrived.Store(at)
}
