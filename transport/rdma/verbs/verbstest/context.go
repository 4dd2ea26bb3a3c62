package verbstest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// context is what one Open has returned.
type context struct {
	a           *adapter
	keys        sync.RWMutex       // guards regions and local
	regions     map[uint32]*region // by the key for peers
	local       map[uint32]*region // by this side's key
	completions map[*completions]bool
	receives    map[*receives]bool
	events      []verbs.Event
	raised      atomic.Int32 // events
	bell        *bell        // of the events
	closed      atomic.Bool
	killed      atomic.Bool
}

func (c *context) String() string { return fmt.Sprintf("host %d: %s", c.a.h.index, c.a.name) }

// begin is the beginning of a call. It returns with mu, also with an error.
func (c *context) begin(call string) error {
	c.a.h.n.mu.Lock()
	return c.works(call)
}

// enter is begin for calls that work also when the adapter has failed.
func (c *context) enter(call string) error {
	c.a.h.n.mu.Lock()
	return c.open(call)
}

// works returns why a call fails that an adapter refuses when it has failed.
func (c *context) works(call string) error {
	err := c.open(call)
	if err == nil && c.a.fatal.Load() {
		return fault.Wrap(fault.System, unix.EIO, "%s: adapter %s has failed", call, c.a.name)
	}
	return err
}

// open returns why a call fails. It takes no lock, so it tells nobody what others have done.
func (c *context) open(call string) error {
	err := c.a.h.refuses(call)
	switch {
	case c.killed.Load():
		return dead()
	case c.closed.Load():
		return c.misuse("%s: %s after Close of the adapter", c, call)
	}
	return err
}

// misuse reports a mistake, and returns an error that says it.
func (c *context) misuse(format string, args ...any) error {
	c.a.h.n.reports.mistake(format, args...)
	return fault.New(fault.Closed, format, args...)
}

// full is the error of a limit.
func full(call string, errno unix.Errno, limit int, of string) error {
	return fault.Wrap(fault.System, errno, "%s: the limit is %d %s", call, limit, of)
}

func (c *context) end() { c.a.h.n.mu.Unlock() }

func (c *context) Device() (verbs.Device, error) {
	defer c.end()
	if err := c.begin("Device"); err != nil {
		return verbs.Device{}, err
	}
	return c.a.describe(), nil
}

func (c *context) Events() int { return c.bell.read }

// raise adds an event.
func (c *context) raise(e verbs.Event) {
	c.events = append(c.events, e)
	c.raised.Add(1)
	c.bell.ring()
}

func (c *context) Event() (verbs.Event, bool, error) {
	if err := c.open("Event"); err != nil || c.raised.Load() == 0 {
		return verbs.Event{}, false, err
	}
	c.a.h.n.mu.Lock()
	defer c.end()
	if len(c.events) == 0 { // another thread has taken it
		return verbs.Event{}, false, nil
	}
	e := c.events[0]
	c.raised.Add(-1)
	c.events = slices.Delete(c.events, 0, 1)
	if len(c.events) == 0 {
		c.bell.hush()
	}
	return e, true, nil
}

// pairs returns those that are not closed.
func (c *context) pairs() []*pair {
	var all []*pair
	for _, p := range c.a.h.n.pairs {
		if p.c == c {
			all = append(all, p)
		}
	}
	return all
}

// left tells what is not closed.
func (c *context) left() []string {
	var all []string
	for _, p := range c.pairs() {
		all = append(all, p.String())
	}
	for q := range c.completions {
		all = append(all, q.String())
	}
	for q := range c.receives {
		all = append(all, q.String())
	}
	for _, r := range c.regions {
		all = append(all, r.String())
	}
	return all
}

// Close refuses while there is something that was made from it, as the system does.
func (c *context) Close() error {
	defer c.end()
	if err := c.enter("Close"); err != nil {
		return err
	}
	if left := c.left(); len(left) > 0 {
		c.a.h.n.reports.mistake("%s: Close before that of %d others, the first is %s", c, len(left), left[0])
		return fault.Wrap(fault.System, unix.EBUSY, "closing adapter %s", c.a.name)
	}
	c.closed.Store(true)
	delete(c.a.h.contexts, c)
	c.bell.close()
	return nil
}
