package faulty

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

type link struct {
	inner    transport.Link
	cut      *cut
	lost     *fault.Error
	ended    atomic.Bool   // Err has reported the end of the inner link
	trip     time.Duration // the least that State says
	leaves   atomic.Int64  // when what was published has left, in nanoseconds; 0 for at once
	channels []*channel
	ends     []transport.Channel // what Channel returns
	wakes    wakes
	control  control

	leaving sync.Mutex
	left    bool // Leave was called: Err, which any thread may call, looks at no channel any more
}

// end returns the link as its user sees it: a Lender where inner is.
func (l *link) end() transport.Link {
	if lender, ok := l.inner.(transport.Lender); ok {
		return &lending{l, lender}
	}
	return l
}

// lending is a link that is a Lender, whose wake-ups may be late.
type lending struct {
	*link
	transport.Lender
}

// control delays the control messages that arrive, and drops them once the link is cut.
type control struct {
	faults  []lot
	handler func([]byte)
	made    chan struct{} // closed when Connect has returned
	number  int           // of the next message
}

// wakes delays calls of Notify.
type wakes struct {
	faults []lot
	mu     sync.Mutex // a late call must not come after Close
	number int
	closed bool
}

func (l *link) Channel(i int) transport.Channel { return l.ends[i] }

func (l *link) Open() bool { return l.inner.Open() }

func (l *link) State() transport.LinkState {
	state := l.inner.State()
	state.RoundTrip = max(state.RoundTrip, l.trip)
	return state
}

func (l *link) Flushed() bool {
	if l.cut.done.Load() {
		return true
	}
	at := l.leaves.Load()
	return (at == 0 || time.Now().UnixNano() >= at) && l.inner.Flushed()
}

func (l *lending) Notify() {
	w := &l.wakes
	if len(w.faults) == 0 {
		l.Lender.Notify()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := time.Duration(0)
	for i := range w.faults {
		if f := &w.faults[i]; f.hits(w.number) {
			delay += f.delay(w.number)
		}
	}
	w.number++
	if delay == 0 {
		l.Lender.Notify()
		return
	}
	time.AfterFunc(delay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			l.Lender.Notify()
		}
	})
}

func (l *link) Tell(message []byte) bool { return !l.cut.done.Load() && l.inner.Tell(message) }

// hear is the handler of the inner link. A message that is late holds up those behind it, of all
// links between the two processes.
func (l *link) hear(message []byte) {
	<-l.control.made
	if l.cut == nil {
		return // Connect has failed
	}
	c := &l.control
	delay := time.Duration(0)
	for i := range c.faults {
		f := &c.faults[i]
		if !f.hits(c.number) {
			continue
		}
		if f.Cut {
			l.cut.now()
		}
		delay += f.delay(c.number)
	}
	c.number++
	if delay > 0 {
		time.Sleep(delay)
	}
	if !l.cut.done.Load() {
		c.handler(message)
	}
}

func (l *link) Err() error {
	if l.cut.done.Load() {
		return l.lost
	}
	err := l.inner.Err()
	if err == nil || l.ended.Load() {
		return err
	}
	// The end of the link does not overtake fragments in flight. Once it has been reported, nothing
	// is late any more: what has arrived can be read.
	l.leaving.Lock()
	defer l.leaving.Unlock()
	if l.left {
		return err
	}
	for _, c := range l.channels {
		if c.slow && c.late() {
			return nil
		}
	}
	if l.cut.done.Load() {
		return l.lost // one of the channels has cut it just now
	}
	l.ended.Store(true)
	return err
}

// Close drops late wake-ups: the end of the link wakes the peer.
func (l *link) Close() error { return l.Leave(nil) }

func (l *link) Leave(why []byte) error {
	l.wakes.mu.Lock()
	defer l.wakes.mu.Unlock()
	l.wakes.closed = true
	l.leaving.Lock()
	l.left = true
	l.leaving.Unlock()
	return l.inner.Leave(why)
}

// channel holds back, changes and counts arriving fragments, and limits the space for outgoing
// ones. Once the link is cut it lends none.
type channel struct {
	link     *link
	inner    transport.Channel
	doorbell *park.Doorbell
	faults   []lot // acting on arriving fragments
	slow     bool  // one of the faults is a delay

	mu      sync.Mutex // Err looks at channels too
	number  int        // of the oldest unread fragment
	seen    bool       // the faults of that fragment have acted
	due     time.Time  // when it may be seen
	spoiled []byte     // its payload, if corrupted

	sending sending
}

// sending is the sender's state of the faults that act on outgoing fragments.
type sending struct {
	faults []lot
	number int       // of the next fragment
	asked  bool      // space for it has been asked for, and its faults have acted
	short  int       // most bytes to lend for it; 0 for no limit
	since  time.Time // when space may be lent for it
}

// arriving sets the faults that act on arriving fragments.
func (c *channel) arriving(faults []lot) {
	c.faults = faults
	c.slow = slices.ContainsFunc(faults, func(x lot) bool { return x.late() })
}

// end returns the channel as its user sees it: a Gatherer where inner is.
func (c *channel) end() transport.Channel {
	if gatherer, ok := c.inner.(transport.Gatherer); ok {
		return &gathering{c, gatherer}
	}
	return c
}

// gathering is a channel that is a Gatherer.
type gathering struct {
	*channel
	transport.Gatherer
}

func (g *gathering) Gather(memory []byte, m *transport.Meta) (n int, ok bool) {
	if g.link.cut.done.Load() {
		return 0, false
	}
	most, ok := g.granted(len(memory))
	if !ok {
		return 0, true
	}
	if n, ok = g.Gatherer.Gather(memory[:most], m); n > 0 {
		g.sent()
	}
	return n, ok
}

// Sent does not wait for a peer that is cut off.
func (g *gathering) Sent() bool { return g.Gatherer.Sent() || g.link.cut.done.Load() && g.Withdraw() }

func (c *channel) Reserve(n int) []byte {
	if c.link.cut.done.Load() {
		return nil
	}
	n, ok := c.granted(n)
	if !ok {
		return nil
	}
	return c.inner.Reserve(n)
}

// granted returns how much of n bytes may be sent now as the next fragment; ok is false for want of
// credit.
func (c *channel) granted(n int) (most int, ok bool) {
	s := &c.sending
	if len(s.faults) == 0 {
		return n, true
	}
	if !s.asked {
		s.ask(c.doorbell)
	}
	if !s.since.IsZero() && time.Now().Before(s.since) {
		return 0, false
	}
	if s.short > 0 {
		n = min(n, s.short)
	}
	return n, true
}

// sent counts a fragment. The last one that lingers says when all have left.
func (c *channel) sent() {
	s := &c.sending
	for i := range s.faults {
		if f := &s.faults[i]; f.Linger > 0 && f.hits(s.number) {
			c.link.leaves.Store(time.Now().Add(f.Linger).UnixNano())
		}
	}
	s.number++
	s.asked = false
}

// ask applies the faults of credit to the next fragment.
func (s *sending) ask(doorbell *park.Doorbell) {
	s.asked, s.short, s.since = true, 0, time.Time{}
	hunger := time.Duration(0)
	for i := range s.faults {
		f := &s.faults[i]
		if !f.hits(s.number) {
			continue
		}
		if f.Short > 0 && (s.short == 0 || f.Short < s.short) {
			s.short = f.Short
		}
		hunger += f.Starve
	}
	if hunger > 0 {
		s.since = time.Now().Add(hunger)
		time.AfterFunc(hunger, doorbell.Ring)
	}
}

func (c *channel) Commit(n int, m *transport.Meta) {
	c.Publish(n, m)
	c.Flush()
}

func (c *channel) Publish(n int, m *transport.Meta) {
	if c.link.cut.done.Load() {
		return
	}
	c.inner.Publish(n, m)
	c.sent()
}

func (c *channel) Flush() { c.inner.Flush() }

func (c *channel) Peek() ([]byte, transport.Meta, bool) {
	payload, m := c.Look()
	if m == nil {
		return nil, transport.Meta{}, false
	}
	return payload, *m, true
}

func (c *channel) Look() ([]byte, *transport.Meta) {
	if len(c.faults) == 0 {
		return c.inner.Look()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	payload, m := c.inner.Look()
	if m == nil || !c.arrived(payload) {
		return nil, nil
	}
	if c.spoiled != nil {
		payload = c.spoiled
	}
	return payload, m
}

// arrived reports whether the fragment may be seen. c.mu is held.
func (c *channel) arrived(payload []byte) bool {
	if !c.seen {
		if c.act(payload) {
			return false
		}
		c.seen = true
	}
	return c.due.IsZero() || c.link.ended.Load() || !time.Now().Before(c.due)
}

// late reports whether a fragment is being held back.
func (c *channel) late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	payload, m := c.inner.Look()
	return m != nil && !c.arrived(payload) && !c.link.cut.done.Load()
}

// act applies the faults to a fragment. It reports whether the link was cut.
func (c *channel) act(payload []byte) bool {
	delay := time.Duration(0)
	for i := range c.faults {
		f := &c.faults[i]
		if !f.hits(c.number) {
			continue
		}
		if f.Cut {
			c.link.cut.now()
			return true
		}
		delay += f.delay(c.number)
		if f.Corrupt != 0 && len(payload) > 0 {
			if c.spoiled == nil {
				c.spoiled = append([]byte{}, payload...)
			}
			c.spoiled[f.Byte%len(payload)] ^= f.Corrupt
		}
	}
	if delay > 0 {
		c.due = time.Now().Add(delay)
		time.AfterFunc(delay, c.doorbell.Ring)
	}
	return false
}

func (c *channel) Release() {
	c.Consume()
	c.Flush()
}

func (c *channel) Consume() {
	if len(c.faults) == 0 {
		c.inner.Consume()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inner.Consume()
	c.number++
	c.seen, c.due, c.spoiled = false, time.Time{}, nil
}
