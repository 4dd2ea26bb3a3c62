package rdma

import (
	"sync"
	"time"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// outQueue is what a channel sends. A fragment that was sent over a connection stays here until the
// peer has released it; if the connection breaks before, it goes by tcp, in its turn.
type outQueue struct {
	channel *channel

	mu      sync.Mutex
	way     *connection // nil: fragments go by tcp
	to      target      // where the peer takes them over way
	next    *target     // what comes after way, once nothing is in flight
	number  uint64      // of the next fragment
	ring    [mostFlight]sent
	sent    uint32 // fragments over connections so far
	posted  uint32 // those of them that were posted: the others wait for room
	heard   uint32 // those of them that the peer has released
	freed   uint32 // those of them whose slots may be used again, or that went by tcp
	unmoved uint32 // of those in between: how many of the last are to go by tcp
	partial int    // bytes of the first one to move that have gone
	shorts  uint32 // short ones so far
	free    uint32 // those of them that were released
	grants  []uint32
	wants   bool              // a long slot would have been used
	stage   []byte            // short slots of this side
	heads   []byte            // of fragments in flight that are sent in place
	pool    *pool             // of long ones
	past    [MostPorts]cursor // by path
	vacates bool              // way is to be left when nothing is in flight

	lent   []byte // with its head or tail
	kind   lentKind
	slot   uint32 // of the pool, if it is long
	closed bool   // the link was closed: nothing is published any more
	gone   bool   // the peer has left

	// Of what is sent in place.
	inPlace   int         // fragments in flight
	broken    *connection // one that may still read some of them, until it has ended
	withdrawn time.Time   // when the sender gave it up
}

// sent is a fragment in a slot of this side, or in memory of the sender.
type sent struct {
	bytes []byte // with its head; only the head if from is not nil
	from  *span  // of the sender
	rest  []byte // the payload in it
	slot  uint32
	to    uint32 // slot of the peer
	long  bool   // that one is
	pool  bool   // slot is of the pool of this side
	write uint64 // its number
}

// cursor is what was sent over a connection that was left in order: the channel may return to it.
type cursor struct {
	way          *connection
	sent, shorts uint32
}

// target is a connection and where the peer has the short slots of a channel for it.
type target struct {
	way   *connection
	at    uint64
	key   uint32
	bytes int    // of one
	long  int    // a long slot, too; -1 for none
	stage uint32 // the key of the short slots of this side
}

type lentKind byte

const (
	lentNothing lentKind = iota
	lentByTCP
	lentShort
	lentLong
)

// reserve lends space for a fragment.
func (q *outQueue) reserve(n int) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = max(n, 0)
	q.unlend()
	q.settle()
	switch {
	case q.unmoved > 0 || q.gone || q.closed:
		return nil
	case q.way == nil:
		return q.lend(q.channel.tcp.Reserve(n+headBytes), lentByTCP, n)
	}
	if q.sent-q.freed >= mostFlight {
		return nil
	}
	short := q.short()
	q.wants = n > short-headBytes
	if q.wants && len(q.grants) > 0 {
		if slot, ok := q.pool.take(); ok {
			q.slot = slot
			return q.lend(q.pool.slot(slot), lentLong, n)
		}
	}
	if q.shorts-q.free >= shortSlots {
		return nil
	}
	at := int(q.shorts%shortSlots) * q.channel.link.short
	return q.lend(q.stage[at:at+short], lentShort, n)
}

// short returns the bytes of short slots: both sides have room for as many.
func (q *outQueue) short() int { return min(q.to.bytes, q.channel.link.short) }

// lend notes what was lent: n bytes behind the head, or as many as there are.
func (q *outQueue) lend(b []byte, kind lentKind, n int) []byte {
	if len(b) < headBytes || n > 0 && len(b) == headBytes {
		q.lent, q.kind = nil, lentNothing
		return nil
	}
	if rest := len(b) - headBytes; rest < n {
		n = rest &^ 63
	}
	q.lent, q.kind = b[:headBytes+n], kind
	return b[headBytes : headBytes+n : headBytes+n]
}

// unlend forgets what was lent.
func (q *outQueue) unlend() {
	if q.kind == lentLong {
		q.pool.put(q.slot)
	}
	q.lent, q.kind = nil, lentNothing
}

// publish sends the first n bytes of what was lent.
func (q *outQueue) publish(n int, m *transport.Meta) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kind == lentNothing || n < 0 || headBytes+n > len(q.lent) {
		panic("rdma: Commit of more than the last Reserve lent")
	}
	b, kind := q.lent[:headBytes+n], q.kind
	q.lent, q.kind = nil, lentNothing
	if kind == lentByTCP {
		t := tail{number: q.number, whole: uint32(n)}
		t.put(b)
		q.number++
		q.channel.tcp.Commit(headBytes+n, m)
		return
	}
	h := head{number: q.number, wants: q.wants, credit: q.channel.credit(q.way), meta: *m}
	h.put(b)
	q.number++
	q.enqueue(sent{bytes: b, slot: q.slot, long: kind == lentLong, pool: kind == lentLong})
}

// enqueue sends a fragment, of which it remains to be said where at the peer it goes to.
func (q *outQueue) enqueue(e sent) {
	if e.long && q.way != nil {
		e.to = q.grants[0]
		q.grants = append(q.grants[:0], q.grants[1:]...)
	}
	if !e.long {
		e.to = q.shorts % shortSlots
		q.shorts++
	}
	q.ring[q.sent%mostFlight] = e
	q.sent++
	if q.way == nil { // it broke since Reserve
		q.unmoved++
		q.channel.link.pair.schedule()
		return
	}
	q.post()
}

// post posts what was published, as far as there is room. q.mu is held.
func (q *outQueue) post() {
	for again := true; q.posted != q.sent && q.way != nil && !q.gone; {
		switch {
		case q.way.claim():
			q.write(&q.ring[q.posted%mostFlight])
			q.posted++
		case again: // there may be room since
			q.way.wait(q.channel)
			again = false
		default:
			return
		}
	}
}

func (q *outQueue) write(e *sent) {
	w := verbs.Write{Tell: true, Inline: e.from == nil && len(e.bytes) <= q.way.inline,
		From: [2]verbs.Piece{{At: address(e.bytes), Bytes: uint32(len(e.bytes))}}}
	w.From[0].Key = q.to.stage
	if e.long {
		w.To, w.Key = q.way.pool.At+uint64(e.to)*longBytes, q.way.pool.Key
		w.Immediate = immediate(kindLong, q.channel.theirs(), e.to)
	} else {
		w.To, w.Key = q.to.at+uint64(e.to)*uint64(q.to.bytes), q.to.key
		w.Immediate = immediate(kindShort, q.channel.theirs(), e.to)
	}
	w.Complete = q.vacates || q.posted%shortSlots%fewSlots == fewSlots-1
	switch {
	case e.from != nil:
		w.From[1] = verbs.Piece{At: address(e.rest), Bytes: uint32(len(e.rest)), Key: e.from.region.Local()}
		w.Complete = true // the sender waits for it
	case e.pool:
		w.From[0].Key = q.way.a.out.region.Local()
	}
	e.write = q.way.post(w)
}

// fewSlots is how many fragments of a channel may wait for one that makes a completion.
const fewSlots = shortSlots / 2

// resume posts what there was no room for.
func (q *outQueue) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.post()
}

// credit notes that the peer has released fragments: value is how many so far, modulo values.
func (q *outQueue) credit(way *connection, value uint32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.way != way {
		return nil // it was left
	}
	n := (value - q.heard) % values
	if n >= values/2 {
		return nil // it has waited for room, and a later one came before
	}
	if n > q.posted-q.heard {
		return protocolErrorf("releases %d of %d fragments", n, q.posted-q.heard)
	}
	q.heard += n
	q.reclaim()
	return nil
}

// reclaim takes slots back whose fragments the peer has released, and the adapter does not read any
// more.
func (q *outQueue) reclaim() {
	for q.freed != q.heard && q.ring[q.freed%mostFlight].write <= q.way.done.Load() {
		q.release()
	}
}

// release takes back the slot of the oldest fragment in flight.
func (q *outQueue) release() {
	e := &q.ring[q.freed%mostFlight]
	if e.pool {
		q.pool.put(e.slot)
	}
	if !e.long {
		q.free++
	}
	if e.from != nil {
		q.inPlace--
		e.from.done()
	}
	*e = sent{}
	q.freed++
}

// grant notes a long slot of the peer.
func (q *outQueue) grant(way *connection, slot uint32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.way != way {
		return nil
	}
	if int(slot) >= way.pool.Slots || len(q.grants) >= mostGrants {
		return protocolErrorf("grants slot %d of %d, beside %d others", slot, way.pool.Slots, len(q.grants))
	}
	q.grants = append(q.grants, slot)
	return nil
}

// settle does what is due after a connection has broken, or has been made. q.mu is held.
func (q *outQueue) settle() {
	if q.way != nil && !q.way.works() {
		if q.inPlace > 0 {
			q.broken = q.way
		}
		q.unmoved = q.sent - q.freed
		q.way.path.moved.Add(int64(q.unmoved))
		q.detach()
	}
	if q.way != nil {
		q.reclaim()
	}
	q.move()
	if q.vacates && q.sent == q.freed && q.kind == lentNothing {
		q.past[q.way.path.number] = cursor{q.way, q.sent, q.shorts}
		q.detach()
		q.channel.link.pair.schedule()
	}
	if q.way == nil && q.next != nil && q.sent == q.freed && q.kind == lentNothing && !q.gone && !q.closed {
		if q.next.way.works() {
			q.to, q.way, q.pool = *q.next, q.next.way, q.next.way.a.out
			if q.to.long >= 0 {
				q.grants = append(q.grants, uint32(q.to.long))
			}
			last := &q.past[q.way.path.number]
			if last.way != q.way {
				*last = cursor{}
			}
			q.sent, q.posted, q.heard, q.freed = last.sent, last.sent, last.sent, last.sent
			q.shorts, q.free = last.shorts, last.shorts
		}
		q.next = nil
	}
}

// detach leaves a connection.
func (q *outQueue) detach() { q.way, q.vacates, q.grants = nil, false, q.grants[:0] }

// move sends fragments by tcp that have not gone there: as many as it has room for.
func (q *outQueue) move() {
	if q.broken != nil && !q.broken.ended.Load() {
		return // a fragment that has gone by tcp frees memory that the adapter may still read
	}
	q.broken = nil
	for q.unmoved > 0 && !q.gone {
		e := &q.ring[q.freed%mostFlight]
		var h head
		h.get(e.bytes)
		payload := e.bytes[headBytes:]
		if e.from != nil {
			payload = e.rest
		}
		rest := payload[q.partial:]
		b := q.channel.tcp.Reserve(headBytes + len(rest))
		if len(b) < headBytes || len(b) == headBytes && len(rest) > 0 {
			return
		}
		n := copy(b[headBytes:], rest)
		t := tail{number: h.number, at: uint32(q.partial), whole: uint32(len(payload))}
		t.put(b)
		q.channel.tcp.Commit(headBytes+n, &h.meta)
		if q.partial += n; n < len(rest) {
			continue
		}
		q.partial = 0
		q.unmoved--
		q.release()
	}
}

// leave settles, for a driver that may be busy elsewhere, and reports whether nothing is left that
// has to go by tcp.
func (q *outQueue) leave() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
	return q.unmoved == 0
}

// flushed settles, and reports whether the adapter or tcp has everything.
func (q *outQueue) flushed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
	return q.gone || q.unmoved == 0 && (q.way == nil || q.posted == q.sent)
}

// arrange notes where fragments go from now on.
func (q *outQueue) arrange(t target) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next = &t
	q.settle()
}

// vacate has a connection left at the next moment when nothing is in flight.
func (q *outQueue) vacate(way *connection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next != nil && q.next.way == way {
		q.next = nil
	}
	q.vacates = q.vacates || q.way == way
}

// vacated settles, and reports whether a connection was left.
func (q *outQueue) vacated(way *connection) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
	return q.way != way
}

// close has nothing published any more, and reports whether all that was has reached the peer's
// memory, or tcp. If not, way is the connection that it was posted to, nil if it is to go by tcp.
func (q *outQueue) close() (reached bool, way *connection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.settle()
	if q.sent == q.freed || q.gone { // or nobody takes it
		return true, nil
	}
	last := &q.ring[(q.sent-1)%mostFlight]
	return q.way != nil && q.posted == q.sent && last.write <= q.way.done.Load(), q.way
}

// drop gives back what is in flight, which nobody reads any more.
func (q *outQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = true
	for q.sent != q.freed {
		q.release()
	}
	q.unlend()
	q.unmoved, q.next = 0, nil
	q.detach()
}

// stopSending has nothing more posted: one end of the link was closed.
func (q *outQueue) stopSending() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = true
}
