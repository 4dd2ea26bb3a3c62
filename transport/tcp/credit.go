package tcp

import (
	"sync/atomic"
	"time"
)

// A direction of a channel has room for maxFragments fragments at first. This fills a short path,
// and the memory stays in the cache. On a long path the room is doubled, step by step, while the
// sender lacks credit although its socket is empty: the sender asks, the receiver grants.
const (
	maxScale     = 5                      // the room is doubled so often at most
	mostOfPair   = 16 << 20               // bytes that all sessions of a pair have more than at first, in one direction
	mostOfFabric = 64 << 20               // the same of all pairs
	nearBy       = 100 * time.Microsecond // with a shorter round trip, the first room suffices
	lookAgain    = 500 * time.Microsecond // between two looks at the path
	askAgain     = time.Second            // until a request that was not granted is repeated
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

// spend reports whether the budget allows a session to have more room in one direction.
func (p *pair) spend(s *session, outgoing bool, from, to uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	way := 0
	if outgoing {
		way = 1
	}
	more := room(to) - room(from)
	if s.removed.Load() || p.spent[way]+more > mostOfPair {
		return false
	}
	if p.f.spent[way].Add(more) > mostOfFabric {
		p.f.spent[way].Add(-more)
		return false
	}
	p.spent[way] += more
	s.spent[way] += more
	return true
}

// refund gives back what a session has spent. p.mu is held.
func (p *pair) refund(s *session) {
	for way, bytes := range s.spent {
		p.spent[way] -= bytes
		p.f.spent[way].Add(-bytes)
		s.spent[way] = 0
	}
}

// widen gives the outgoing direction more room, if there may be more than now. If not, it asks for
// more where the path calls for it.
func (ch *channel) widen() bool {
	q := &ch.out
	if q.ring.size() == 0 {
		q.ring.grow(0, 0)
		return true
	}
	if granted := min(q.granted.Load(), q.wanted.Load()); granted > q.scale {
		q.scale = granted
		q.ring.grow(granted, q.reclaimed)
		return true
	}
	now := time.Now()
	if q.scale == maxScale || now.Before(q.look) {
		return false
	}
	q.look = now.Add(lookAgain)
	p := ch.session.pair
	c := p.live.Load()
	if c == nil || !c.distant() {
		return false
	}
	if q.wanted.Load() == q.scale {
		if !p.spend(ch.session, true, q.scale, q.scale+1) {
			q.look = now.Add(askAgain)
			return false
		}
		q.wanted.Store(q.scale + 1)
	} else if now.Before(q.ask) {
		return false
	}
	q.ask = now.Add(askAgain)
	ch.in.due.Store(true)
	p.enqueue(&ch.node)
	return false
}

// distant reports whether the peer is far away, and the socket holds nothing unsent, so that it is
// credit that is lacking.
func (c *conn) distant() (far bool) {
	if !c.writing.CompareAndSwap(false, true) {
		return false
	}
	if !c.down.Load() && !c.unresumed.Load() {
		path := c.f.measure(c.fd, &c.info)
		far = path.unsent == 0 && path.roundTrip >= nearBy
	}
	c.writing.Store(false)
	c.flush() // for frames that other threads have queued meanwhile
	return far
}

// path is what the kernel knows of the path to a peer.
type path struct {
	unsent    int           // bytes
	roundTrip time.Duration // the shortest one; 0 if the kernel does not measure it
}

// grant handles the peer's wish for more room on a channel, and what it grants for the other
// direction. The reading lock is held.
func (p *pair) grant(ch *channel, granted, wanted uint32) error {
	if granted > maxScale || wanted > maxScale {
		return violates("room for 2^%d, 2^%d times the fragments", granted, wanted)
	}
	if granted > ch.out.granted.Load() {
		ch.out.granted.Store(granted)
	}
	q := &ch.in
	if scale := q.scale.Load(); wanted > scale && p.spend(ch.session, false, scale, wanted) {
		q.ring.grow(wanted, q.reclaimed)
		q.scale.Store(wanted)
		q.due.Store(true)
		p.push(&ch.node)
	}
	return nil
}
