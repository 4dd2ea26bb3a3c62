package rdma

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/transport"
)

// inQueue is where fragments of a channel arrive over a connection: its slots, and what has arrived
// in them. The thread that polls the adapter puts, the driver of the group takes. Counters wrap
// around.
type inQueue struct {
	channel *channel
	way     *connection
	slots   []byte // the short ones
	bytes   int    // of a short one

	ring     [mostFlight]arrival
	arrived  atomic.Uint32
	released atomic.Uint32
	shorts   uint32        // poller: how many of those that have arrived were short
	freed    atomic.Uint32 // driver: how many of those that were released were short

	mu      sync.Mutex
	told    uint32   // value of released that the peer knows of
	due     bool     // the peer is to be told
	granted []uint32 // long slots that the peer may use
	mute    bool     // nothing is told any more
	asked   bool     // the peer was asked to vacate the slots: it is told of everything at once
	closed  bool     // manager: nothing arrives any more
}

// arrival is a fragment that has arrived.
type arrival struct {
	head    head
	payload []byte
	long    int // the slot, -1 for a short one
}

// take takes a fragment of n bytes, with its head, and returns what credit comes with it.
func (q *inQueue) take(k kind, slot, n uint32) (credit uint32, err error) {
	if k == kindShort {
		err = q.short(n)
	} else {
		err = q.long(slot, n)
	}
	return q.ring[(q.arrived.Load()-1)%mostFlight].head.credit, err
}

// short takes a fragment from the next short slot.
func (q *inQueue) short(n uint32) error {
	if q.shorts-q.freed.Load() >= shortSlots {
		return protocolErrorf("uses short slots that were not released")
	}
	at := int(q.shorts%shortSlots) * q.bytes
	q.shorts++
	return q.put(q.slots[at:at+q.bytes], n, -1)
}

// long takes a fragment from a long slot.
func (q *inQueue) long(slot, n uint32) error {
	q.mu.Lock()
	at := slices.Index(q.granted, slot)
	if at >= 0 {
		q.granted = slices.Delete(q.granted, at, at+1)
	}
	q.mu.Unlock()
	if at < 0 {
		return protocolErrorf("uses long slot %d, which was not granted", slot)
	}
	return q.put(q.way.a.in.slot(slot), n, int(slot))
}

func (q *inQueue) put(slot []byte, n uint32, long int) error {
	arrived := q.arrived.Load()
	if arrived-q.released.Load() >= mostFlight {
		return protocolErrorf("has more than %d fragments on the way", mostFlight)
	}
	if n < headBytes || int(n) > len(slot) {
		return protocolErrorf("writes %d bytes into a slot of %d", n, len(slot))
	}
	a := &q.ring[arrived%mostFlight]
	a.head.get(slot)
	a.payload, a.long = slot[headBytes:n:n], long
	q.arrived.Store(arrived + 1)
	return nil
}

// first returns the oldest fragment that was not released, nil if there is none.
func (q *inQueue) first() *arrival {
	at := q.released.Load()
	if at == q.arrived.Load() {
		return nil
	}
	return &q.ring[at%mostFlight]
}

// release gives the oldest fragment back.
func (q *inQueue) release() {
	at := q.released.Load()
	a := &q.ring[at%mostFlight]
	wants, waits, long := a.head.wants, a.head.waits, a.long
	if long >= 0 {
		q.way.a.in.put(uint32(long))
	} else {
		q.freed.Add(1)
	}
	a.payload = nil
	q.released.Store(at + 1)
	q.mu.Lock()
	q.due = q.due || long >= 0 || waits || q.asked || at+1-q.told >= shortSlots/2
	q.mu.Unlock()
	if wants || long >= 0 {
		q.grant()
	}
}

// grant lets the peer use long slots: few of them are for those that have many already.
func (q *inQueue) grant() {
	q.mu.Lock()
	defer q.mu.Unlock()
	pool := q.way.a.in
	most := min(mostGrants, max(1, pool.all/(2*int(q.way.a.bound.Load()))))
	for !q.mute && q.way.works() && len(q.granted) < most && q.way.claim() {
		slot, ok := pool.take()
		if !ok {
			q.way.disclaim()
			return
		}
		q.granted = append(q.granted, slot)
		q.way.tell(immediate(kindGrant, q.channel.theirs(), slot))
	}
}

// tell has the peer learn of what was released, if enough was.
func (q *inQueue) tell() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.due || q.mute || !q.way.works() {
		return
	}
	if !q.way.claim() {
		q.way.wait(q.channel)
		if !q.way.claim() {
			return
		}
	}
	q.due = false
	q.told = q.released.Load()
	q.way.tell(immediate(kindCredit, q.channel.theirs(), q.told))
}

// credit is that of the channel; q may be nil.
func (q *inQueue) credit(way *connection) uint32 {
	if q == nil || q.way != way {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = false
	q.told = q.released.Load()
	return q.told
}

// ask has the peer told of everything that was released, so that it can vacate the slots.
func (q *inQueue) ask() {
	q.mu.Lock()
	q.asked, q.due = true, true
	q.mu.Unlock()
	q.tell()
}

// again has the peer write to the slots another time, by the same connection. Both sides go on
// counting: what they have told each other may still be on the way.
func (q *inQueue) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked, q.mute, q.closed = false, false, false
}

// stopSending has the peer told nothing more: neither credit nor grants.
func (q *inQueue) stopSending() {
	q.mu.Lock()
	q.mute = true
	q.mu.Unlock()
}

// drained reports whether everything that has arrived was released.
func (q *inQueue) drained() bool { return q.released.Load() == q.arrived.Load() }

// end takes the long slots back that the peer has not used; it cannot any more.
func (q *inQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mute = true
	for _, slot := range q.granted {
		q.way.a.in.put(slot)
	}
	q.granted = nil
}

// forget gives back the long slots of what has arrived, which nobody reads any more.
func (q *inQueue) forget() {
	q.end()
	for at := q.released.Load(); at != q.arrived.Load(); at++ {
		if long := q.ring[at%mostFlight].long; long >= 0 {
			q.way.a.in.put(uint32(long))
		}
	}
	q.released.Store(q.arrived.Load())
}

var _ transport.Channel = (*channel)(nil)
