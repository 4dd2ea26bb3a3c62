package tcp

import (
	"sync/atomic"
	"time"
)

// A direction of a channel has room for maxFragments fragments at first. This fills a short path,
// and the memory stays in the cache. The receiver of a long message gives it twice this room, so
// that the sender goes on while the receiver copies; on a long path the room that a fast path of
// this length holds, and on a slow one a part of that.
const (
	maxScale     = 4        // the room is doubled so often at most
	longScale    = 1        // so often for a long message over any path
	severalScale = 2        // and so often with several sockets, all of which must have something to send
	mostOfPair   = 16 << 20 // bytes that all sessions of a pair have more than at first, in one direction
	mostOfFabric = 64 << 20 // the same of all pairs
	fastPath     = 2        // bytes a nanosecond
	lookAgain    = 500 * time.Microsecond
	queueScale   = 2 // so often where data waits in a queue of the path
	slowQueue    = time.Millisecond
	queueLooks   = 4 // looks in a row that must find the queue
	queueBreak   = 50 * time.Millisecond
)

// room returns how many bytes fit into long fragments.
func room(scale uint32) int64 { return maxLong * maxPayload << scale }

// ring holds the fragments of one direction by their numbers. Its owner may replace it by a longer
// one at any time: the others read only fragments that both hold.
type ring struct {
	fragments atomic.Pointer[[]fragment]
}

// size returns how many fragments the ring holds: a power of 2, or 0.
func (r *ring) size() uint32 {
	if f := r.fragments.Load(); f != nil {
		return uint32(len(*f))
	}
	return 0
}

// at returns the place of a fragment.
func (r *ring) at(number uint32) *fragment {
	f := *r.fragments.Load()
	return &f[number&uint32(len(f)-1)]
}

// grow makes a ring for a scale. The fragments from first on keep their numbers.
func (r *ring) grow(scale, first uint32) {
	longer := make([]fragment, maxFragments<<scale)
	for n := first; n != first+r.size(); n++ {
		longer[n&uint32(len(longer)-1)] = *r.at(n)
	}
	r.fragments.Store(&longer)
}

// distance returns the scale whose room a fast path with this round trip holds.
func distance(roundTrip time.Duration) (scale uint32) {
	held := fastPath * roundTrip.Nanoseconds()
	for scale < maxScale && room(scale) < held {
		scale++
	}
	return scale
}

// spend takes from the budget what a session needs to have more room in one direction, and returns
// the scale that the budget allows, between from and to. A channel gets at most half of what is
// left to the pair, so something is left for the next one.
func (p *pair) spend(s *session, outgoing bool, from, to uint32) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	way := 0
	if outgoing {
		way = 1
	}
	if s.removed.Load() {
		return from
	}
	for ; to > from; to-- {
		more := room(to) - room(from)
		if more > (mostOfPair-p.spent[way])/2 {
			continue
		}
		if p.f.spent[way].Add(more) <= mostOfFabric {
			p.spent[way] += more
			s.spent[way] += more
			return to
		}
		p.f.spent[way].Add(-more)
	}
	return from
}

// refund gives back what a session has spent. p.mu is held.
func (p *pair) refund(s *session) {
	for way, bytes := range s.spent {
		p.spent[way] -= bytes
		p.f.spent[way].Add(-bytes)
		s.spent[way] = 0
	}
}

// widen gives the outgoing direction more room, if there may be more than now.
func (ch *channel) widen() bool {
	q := &ch.out
	if q.ring.size() == 0 {
		q.ring.grow(0, 0)
		return true
	}
	granted := q.granted.Load()
	if granted <= q.scale {
		return false
	}
	scale := ch.session.pair.spend(ch.session, true, q.scale, granted)
	if scale == q.scale {
		return false
	}
	q.scale = scale
	q.ring.grow(scale, q.reclaimed)
	return true
}

// widen gives the incoming direction more room where a long message arrives, and more still over a
// long or slow path. It does not wait until the sender lacks credit: by then congestion control may
// have taken the rate of the credit for the rate of the path. The reading lock is held.
func (c *conn) widen(ch *channel) {
	q := &ch.in
	scale := q.scale.Load()
	if q.long++; scale == maxScale || q.long%creditStep != 0 {
		return
	}
	now := time.Now()
	if now.Before(q.look) {
		return
	}
	shortest, smoothed := c.f.trips(c.main.fd, &c.info)
	wide := max(longScale, distance(shortest), q.queued(smoothed, now.Sub(q.look)))
	q.look = now.Add(lookAgain)
	if c.several() {
		wide = max(wide, severalScale)
	}
	if wide <= scale {
		return
	}
	if wide = c.pair.spend(ch.session, false, scale, wide); wide == scale {
		return
	}
	q.ring.grow(wide, q.reclaimed)
	q.scale.Store(wide)
	q.due.Store(true)
	c.pair.push(&ch.node)
}

// queued returns the scale for the queue before a slow wire. smoothed is the round trip with the
// data that waits: where the first room waits for slowQueue, the wire carries less than 0.5 GB/s,
// and this room leaves the wire idle now and then, which congestion control takes for a slower
// wire. A single long round trip may have waited for a busy process only. pause is the time since
// this could last be asked.
func (q *inQueue) queued(smoothed, pause time.Duration) (scale uint32) {
	if q.looks == 0 || pause > queueBreak {
		q.looks, q.queue = 0, smoothed
	}
	q.queue = min(q.queue, smoothed)
	if q.looks++; q.looks < queueLooks {
		return 0
	}
	q.looks = 0
	if q.queue < slowQueue {
		return 0
	}
	return queueScale
}

// grant handles what the peer says of the room of a channel.
func (q *outQueue) grant(scale uint32) error {
	if scale > maxScale {
		return protocolErrorf("room for 2^%d times the fragments", scale)
	}
	if scale > q.granted.Load() {
		q.granted.Store(scale)
	}
	return nil
}
