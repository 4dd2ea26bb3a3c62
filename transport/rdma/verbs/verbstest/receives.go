package verbstest

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// receives is a shared receive queue.
type receives struct {
	c       *context
	entries int
	using   atomic.Bool // by a thread
	closed  atomic.Bool
	posted  atomic.Uint64
	taken   uint64        // by arrivals
	freed   atomic.Uint64 // of which the completion was polled
}

func (r *receives) String() string {
	return fmt.Sprintf("%s: receive queue of %d", r.c, r.entries)
}

func (c *context) NewReceives(entries int) (verbs.Receives, error) {
	defer c.end()
	if err := c.begin("NewReceives"); err != nil {
		return nil, err
	}
	o := &c.a.h.n.o
	switch {
	case entries < 1:
		return nil, fault.Wrap(fault.System, unix.EINVAL, "NewReceives with %d entries", entries)
	case entries > o.Receive:
		return nil, full("NewReceives", unix.EINVAL, o.Receive, "entries")
	}
	r := &receives{c: c, entries: entries}
	c.receives[r] = true
	return r, nil
}

func (r *receives) Post(n int) error {
	if !r.using.CompareAndSwap(false, true) {
		r.c.a.h.n.reports.mistake("%s: Post while another thread uses it", r)
	}
	defer r.using.Store(false)
	if err := r.c.works("Receives.Post"); err != nil {
		return err
	}
	if r.closed.Load() {
		return r.c.misuse("%s: Post after Close", r)
	}
	there := int(r.posted.Load() - r.freed.Load())
	r.posted.Add(uint64(max(0, min(n, r.entries-there))))
	r.c.a.h.n.wake()
	if n < 0 || there+n > r.entries {
		return full("Receives.Post", unix.ENOMEM, r.entries, "entries")
	}
	return nil
}

func (r *receives) Close() error {
	defer r.c.end()
	if err := r.c.enter("Receives.Close"); err != nil {
		return err
	}
	if r.closed.Load() {
		return r.c.misuse("a second Close of %s", r)
	}
	for _, p := range r.c.pairs() {
		if p.o.Receives == r {
			r.c.a.h.n.reports.mistake("Close of %s before that of %s", r, p)
			return fault.Wrap(fault.System, unix.EBUSY, "closing a receive queue that has pairs")
		}
	}
	r.closed.Store(true)
	delete(r.c.receives, r)
	return nil
}
