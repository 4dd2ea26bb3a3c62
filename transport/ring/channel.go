package ring

import (
	"fmt"
	"sync/atomic"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// Ends describes the memory through which the two ends of a link communicate.
type Ends struct {
	Own, Peer []byte            // AreaBytes for each channel, aligned to 64; Peer is only read
	OwnSlot   int               // size of the private slots of Own
	PeerSlot  int               // and of Peer
	Pool      *Pool             // of this process; if nil, only private slots are lent
	PeerPool  []byte            // the memory of the peer's Pool; only read
	Doorbell  *park.Doorbell    // of the peer's process
	Claim     func(next []byte) // claims memory that this end fills next; nil where that does not pay
	Broken    func(text string) // called when the peer's memory holds an impossible value
}

// Channel is one channel of a link. It implements transport.Channel.
type Channel struct {
	// Sending.
	out      *area
	most     int            // size of a private slot
	back     *atomic.Uint64 // the peer's count of released fragments
	pool     *Pool
	doorbell *park.Doorbell
	head     uint64           // number of the next fragment
	tail     uint64           // number of the oldest fragment that is not known to be released
	told     uint64           // the peer's count in the last fragment received
	lent     []byte           // by the last Reserve; nil after Publish
	kind     int              // memory kind of the last Reserve
	slot     int32            // 1 + the leased slot that is being filled, 0 is none
	base     int              // where in that slot the series begins, a multiple of 64
	used     int              // where its next fragment goes, a multiple of 64
	claim    func([]byte)     // Ends.Claim
	apart    int              // length of the last fragment if it is in a private slot
	leases   int              // slots of the pool not known to be released, including that one
	slotOf   [Depth]filled    // the slot whose last fragment this is; slots count from 1, 0 is none
	idle     [MaxSpare]filled // slots that came back, the last one lent first; a scan may take them away
	idles    int
	stage    inline // small payloads are written here first: the receiver polls the line

	// Receiving.
	in       *area
	theirs   int // size of the peer's private slots
	released *atomic.Uint64
	peerPool []byte
	next     uint64 // number of the next fragment to read
	held     bool   // Look has returned it
	payload  []byte
	meta     transport.Meta

	quiet  bool // something was published or consumed since the last Flush
	fence  park.Fence
	broken func(string)
	closed bool // closed or broken: nothing is lent and nothing arrives
	_      [64]byte
}

// filled is a slot that holds sent fragments.
type filled struct {
	slot  int32 // counted from 1
	end   int32 // where the series in it ended; the next one begins there if there is a claim, else at 0
	state uint64
}

var _ transport.Channel = (*Channel)(nil)

// Open returns the channels of one end.
func Open(channels int, e Ends) []Channel {
	all := make([]Channel, channels)
	for i := range all {
		c := &all[i]
		c.out, c.most = areaAt(e.Own, i, e.OwnSlot), e.OwnSlot
		c.in, c.theirs = areaAt(e.Peer, i, e.PeerSlot), e.PeerSlot
		c.back, c.released = &c.in.released, &c.out.released
		c.pool, c.peerPool, c.doorbell, c.broken = e.Pool, e.PeerPool, e.Doorbell, e.Broken
		c.claim = e.Claim
	}
	return all
}

// Reserve lends space for a payload of up to n bytes.
func (c *Channel) Reserve(n int) []byte {
	c.lent = nil
	if c.closed {
		return nil
	}
	if n > LeaseBytes {
		n = LeaseBytes
	}
	if n > LeaseBytes-c.used {
		if c.used > c.base {
			c.fill()
		} else {
			c.base, c.used = 0, 0
		}
	}
	if n > c.most && c.slot == 0 && c.idles == 0 || c.head-c.tail == Depth {
		// Large slots are reclaimed early, so that the next ones lent are those still in the
		// caches.
		c.reclaim()
		if c.closed || c.head-c.tail == Depth {
			return nil
		}
	}
	at := c.head % Depth
	switch {
	case n <= InlineBytes:
		c.kind, c.lent = inLine, c.stage.bytes()[:n:n]
	case n <= c.most:
		c.kind, c.lent = inSlot, c.out.slot(at, c.most)[:n:n]
	default:
		if c.slot == 0 && c.pool != nil {
			if c.leases == MaxLeases {
				return nil
			}
			if slot, at := c.takeSlot(); slot >= 0 {
				if n > LeaseBytes-at {
					at = 0
				}
				c.slot, c.base, c.used = slot+1, at, at
				c.leases++
			}
		}
		if c.slot == 0 {
			c.kind, c.lent = inSlot, c.out.slot(at, c.most)
			return c.lent
		}
		c.kind, c.lent = inPool, c.pool.slot(c.slot - 1)[c.used:c.used+n:c.used+n]
		return c.lent
	}
	if c.slot != 0 && c.used == c.base {
		c.dropLease()
	}
	return c.lent
}

// takeSlot returns a slot to be filled, preferably one that came back, and where in it the series
// begins; or -1.
func (c *Channel) takeSlot() (slot int32, at int) {
	for c.idles > 0 {
		c.idles--
		if s := c.idle[c.idles]; c.pool.retake(s.slot-1, s.state) {
			return s.slot - 1, int(s.end)
		}
	}
	return c.pool.take(c), 0
}

// dropLease gives back a reserved slot to which nothing was committed.
func (c *Channel) dropLease() {
	c.pool.drop(c.slot - 1)
	c.slot, c.base, c.used = 0, 0, 0
	c.leases--
}

// fill closes the slot that is being filled to further fragments. It holds at least one.
func (c *Channel) fill() {
	last := filled{slot: c.slot, state: c.pool.commit(c.slot-1, uint32(c.head-1))}
	if c.claim != nil {
		last.end = int32(c.used)
	}
	c.slot, c.base, c.used = 0, 0, 0
	if c.tail == c.head { // all of them have come back meanwhile
		c.returned(last)
	} else {
		c.slotOf[(c.head-1)%Depth] = last
	}
}

// returned keeps or gives away a slot whose fragments have all been released.
func (c *Channel) returned(s filled) {
	if c.idles < MaxSpare {
		c.idle[c.idles] = s
		c.idles++
	} else {
		c.pool.reclaim(s.slot-1, s.state)
	}
	c.leases--
}

// reclaim takes note of the peer's releases: first of the count in the peer's own fragments, then,
// if that is not new or not enough, of its counter.
func (c *Channel) reclaim() {
	if c.told > c.tail {
		if c.settle(c.told); c.closed || c.leases < MaxLeases {
			return
		}
	}
	c.settle(c.back.Load())
}

func (c *Channel) settle(released uint64) {
	if released-c.tail > c.head-c.tail {
		c.fail(fmt.Sprintf("it has released %d fragments of %d that were sent", released-c.tail, c.head-c.tail))
		return
	}
	for ; c.tail != released; c.tail++ {
		if s := &c.slotOf[c.tail%Depth]; s.slot != 0 {
			c.returned(*s)
			s.slot = 0
		}
	}
}

// Commit is Publish and Flush for a fragment behind which others follow soon: nothing is claimed.
func (c *Channel) Commit(n int, m *transport.Meta) {
	c.Publish(n, m)
	c.flush()
}

// Publish sends the first n bytes of the space that the last Reserve lent. The peer may see them at
// once, but is not woken.
func (c *Channel) Publish(n int, m *transport.Meta) {
	if c.closed {
		return
	}
	if c.lent == nil || n > len(c.lent) {
		panic(fmt.Sprintf("transport: Commit of %d bytes, Reserve had lent %d", n, len(c.lent)))
	}
	l := c.out.line(c.head)
	// Word by word: a wider load of words that were stored just now waits until everything stored
	// before them, the payload too, is in the cache.
	l.meta[0], l.meta[1], l.meta[2] = m[0], m[1], m[2]
	l.given = c.next
	switch c.kind {
	case inLine:
		for i := range l.inline {
			l.inline[i] = c.stage[i]
		}
	case inSlot:
		c.apart = n
	case inPool:
		*l.place() = uint64(c.slot-1)*LeaseBytes + uint64(c.used) // published with the word
		c.used += (n + 63) &^ 63
	}
	c.lent, c.quiet = nil, true
	c.head++
	park.Publish(&l.word, packWord(uint32(c.head), c.kind, n))
}

// Flush ends a series: it wakes the threads that sleep in the peer's process if anything was
// published or consumed. Then it claims the memory of the next series, unless ranks share this
// core: such a rank has no idle time for that.
func (c *Channel) Flush() {
	var next []byte
	if c.claim != nil && !c.closed {
		next = c.after()
	}
	c.flush()
	if next != nil && !park.Shares() {
		c.claim(next)
	}
}

func (c *Channel) flush() {
	if !c.quiet || c.closed {
		return
	}
	c.quiet = false
	if c.used > c.base && c.lent == nil {
		c.fill()
	}
	c.fence.Pass()
	c.doorbell.Ring()
}

// leastClaim is the least length of a fragment whose like is claimed in a private slot: 1 and 2 KiB
// there and back took 0.58 and 0.74 µs instead of 0.62 and 0.81 (Intel Emerald Rapids, 2026-11).
const leastClaim = 512

// after returns where a series like the one that ends will lie if it is the next one, nil if this
// one overlaps it, or an older one may: the peer reads them now.
func (c *Channel) after() []byte {
	last := c.apart
	c.apart = 0
	switch {
	case c.lent != nil:
		return nil
	case c.used == c.base && last >= leastClaim && c.head-c.tail < Depth:
		return c.out.slot(c.head%Depth, c.most)[:last]
	case c.used == c.base:
		return nil
	}
	n, at := c.used-c.base, c.used
	if n > LeaseBytes-at {
		at = 0
	}
	if at < c.used && at+n > c.base {
		return nil
	}
	return c.pool.slot(c.slot - 1)[at : at+n]
}

// Peek is Look with a copy of the Meta.
func (c *Channel) Peek() (payload []byte, m transport.Meta, ok bool) {
	payload, in := c.Look()
	if in == nil {
		return nil, m, false
	}
	m[0], m[1], m[2] = in[0], in[1], in[2]
	return payload, m, true
}

// Look returns the oldest unread fragment.
func (c *Channel) Look() (payload []byte, m *transport.Meta) {
	if c.held {
		return c.payload, &c.meta
	}
	if c.closed {
		return nil, nil
	}
	at := c.next % Depth
	l := c.in.line(c.next)
	number, kind, n := unpackWord(l.word.Load())
	if number != uint32(c.next)+1 {
		return nil, nil
	}
	switch {
	case kind == inLine && n <= InlineBytes:
		payload = l.inline.bytes()[:n:n]
	case kind == inSlot && n <= c.theirs:
		payload = c.in.slot(at, c.theirs)[:n:n]
	case kind == inPool && n <= LeaseBytes:
		place := atomic.LoadUint64(l.place())
		if size := uint64(len(c.peerPool)); place > size || uint64(n) > size-place {
			c.fail(fmt.Sprintf("fragment %d names byte %d of a pool of %d", c.next, place, size))
			return nil, nil
		}
		payload = c.peerPool[place : place+uint64(n) : place+uint64(n)]
	default:
		c.fail(fmt.Sprintf("fragment %d has kind %d and %d bytes", c.next, kind, n))
		return nil, nil
	}
	c.held, c.payload, c.told = true, payload, l.given
	c.meta[0], c.meta[1], c.meta[2] = l.meta[0], l.meta[1], l.meta[2]
	return payload, &c.meta
}

// Release is Consume and Flush.
func (c *Channel) Release() {
	c.Consume()
	c.Flush()
}

// Consume gives the fragment of the last Look back to the sender, which is not woken.
func (c *Channel) Consume() {
	if c.closed {
		return
	}
	if !c.held {
		panic("transport: Release without Peek")
	}
	c.held, c.payload, c.quiet = false, nil, true
	c.next++
	park.Publish(c.released, c.next)
}

// fail ends the channel after the peer's memory held an impossible value.
func (c *Channel) fail(text string) {
	c.closed, c.held, c.payload = true, false, nil
	c.broken(text)
}

// Close ends the channel. It returns the number of pool slots that the peer may still read. Until
// the peer no longer reads them, Forget must not be called and the peer's memory must stay mapped.
func (c *Channel) Close() (unread int) {
	c.Flush() // nothing ends the series any more
	if c.slot != 0 && c.used == c.base {
		c.dropLease()
	} else if c.slot != 0 { // the channel is broken, or space was lent during a series
		c.fill()
	}
	if !c.closed {
		c.settle(c.back.Load())
	}
	for ; c.idles > 0; c.idles-- {
		c.pool.reclaim(c.idle[c.idles-1].slot-1, c.idle[c.idles-1].state)
	}
	c.closed, c.held, c.payload, c.lent = true, false, nil, nil
	return c.leases
}

// Forget takes back the slots that Close could not, once the peer has closed its end or died.
func (c *Channel) Forget() {
	if c.pool != nil {
		c.pool.forget(c)
	}
}
