package faulty

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
)

type link struct {
	inner    transport.Link
	cut      *cut
	lost     *fault.Error
	ended    atomic.Bool // Err has said so
	channels []channel
}

func (l *link) Channel(i int) transport.Channel { return &l.channels[i] }

func (l *link) Window() []byte { return l.inner.Window() }

func (l *link) Notify() { l.inner.Notify() }

func (l *link) Err() error {
	if l.cut.done.Load() {
		return l.lost
	}
	err := l.inner.Err()
	if err == nil || l.ended.Load() {
		return err
	}
	// The end of the link does not overtake fragments that are on their way. Once it is known, nothing is late any more:
	// what has arrived can be read.
	for i := range l.channels {
		if c := &l.channels[i]; c.slow && c.late() {
			return nil
		}
	}
	if l.cut.done.Load() {
		return l.lost // one of them was cut off just now
	}
	l.ended.Store(true)
	return err
}

func (l *link) Close() error { return l.inner.Close() }

// channel holds back, changes and counts what arrives; what is sent passes through until the link is cut.
type channel struct {
	link   *link
	inner  transport.Channel
	bell   *park.Bell
	faults []Fault
	slow   bool // one of the faults is a delay

	mu      sync.Mutex // Err looks at channels too
	number  int        // of the oldest unread fragment
	seen    bool       // its faults have acted
	due     time.Time  // when it may be seen
	spoiled []byte     // its payload, if corrupted
}

func (c *channel) Reserve(n int) []byte {
	if c.link.cut.done.Load() {
		return nil
	}
	return c.inner.Reserve(n)
}

func (c *channel) Commit(n int, m *transport.Meta) {
	if !c.link.cut.done.Load() {
		c.inner.Commit(n, m)
	}
}

func (c *channel) Publish(n int, m *transport.Meta) {
	if !c.link.cut.done.Load() {
		c.inner.Publish(n, m)
	}
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
	payload, m := c.inner.Look()
	if m == nil || len(c.faults) == 0 {
		return payload, m
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.arrived(payload) {
		return nil, nil
	}
	if c.spoiled != nil {
		payload = c.spoiled
	}
	return payload, m
}

// arrived reports whether the fragment may be seen; c.mu is held.
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
	payload, m := c.inner.Look()
	c.mu.Lock()
	defer c.mu.Unlock()
	return m != nil && !c.arrived(payload) && !c.link.cut.done.Load()
}

// act lets the faults of a fragment happen. It reports that the link was cut.
func (c *channel) act(payload []byte) bool {
	delay := time.Duration(0)
	for _, f := range c.faults {
		if !matches(f.Fragment, c.number) {
			continue
		}
		if f.Cut {
			c.link.cut.now()
			return true
		}
		delay += f.Delay
		if f.Corrupt != 0 && len(payload) > 0 {
			if c.spoiled == nil {
				c.spoiled = append([]byte{}, payload...)
			}
			c.spoiled[f.Byte%len(payload)] ^= f.Corrupt
		}
	}
	if delay > 0 {
		c.due = time.Now().Add(delay)
		time.AfterFunc(delay, c.bell.Ring)
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
