package group

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/group/page"
)

// look returns why a replay cannot go on.
func (c *graphs) look(now time.Time) (pending bool, err error) {
	if !c.outlives() {
		return false, nil
	}
	if err := c.g.comm.Check(); err != nil { // which nobody else asks while there are no calls
		return false, err
	}
	c.using.Lock()
	defer c.using.Unlock()
	for i := range c.regions {
		if r := &c.regions[i]; r.used {
			if err := c.stopped(i, r, now); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// stopped returns why the replay of a graph does not go on: it waits for a peer that has gone, or
// has waited for the same flag for the time that the call has.
func (c *graphs) stopped(index int, r *region, now time.Time) error {
	at := c.layout.Ticks(index)
	waits, ticks := c.page.Load(at+8), c.page.Load(at)
	if waits != r.waits || ticks != r.ticks || r.since.IsZero() {
		r.waits, r.ticks, r.since = waits, ticks, now
	}
	if waits == 0 {
		return nil
	}
	call, flags := r.where(waits)
	if call == nil {
		return nil
	}
	in := func(f *fault.Error) error { return f.In(c.g.label(), call.what+", in a replay of a CUDA graph") }
	late := call.timeout > 0 && now.Sub(r.since) > call.timeout
	for _, f := range flags {
		gone := c.gone(f.peer) // what it has set is there if so
		missing := c.page.Load(f.at) == 0
		switch {
		case c.page.Load(at+8) != waits || c.page.Load(at) != ticks: // the flag was set back
			return nil
		case missing && gone != nil:
			return in(gone)
		case missing && late:
			return in(fault.Peer(fault.Timeout, f.peer, "rank %d has not come as far", f.peer))
		}
	}
	return nil
}

// where returns the call in which the stream waits, and for which flags.
func (r *region) where(waits uint64) (*captured, []flag) {
	call, nth := page.OpOf(waits), waits-page.At(page.OpOf(waits), 0, 0)
	if call == 0 || call > uint64(len(r.captured)) {
		return nil, nil
	}
	in := &r.captured[call-1]
	if nth == 0 || nth > uint64(len(in.waits)) {
		return nil, nil
	}
	return in, in.waits[nth-1]
}

// waiting reports whether a replay waits for a peer.
func (c *graphs) waiting() bool {
	c.using.Lock()
	defer c.using.Unlock()
	for i := range c.regions {
		if c.regions[i].used && c.page.Load(c.layout.Ticks(i)+8) != 0 {
			return true
		}
	}
	return false
}

// release lets a replay go on. The stream sets the flags back, so this is repeated for as long as
// it waits for more. The caller holds the lock of words.
func (c *graphs) release() {
	c.using.Lock()
	defer c.using.Unlock()
	for i := range c.regions {
		r := &c.regions[i]
		if !r.used {
			continue
		}
		_, flags := r.where(c.page.Load(c.layout.Ticks(i) + 8))
		for _, f := range flags {
			if c.page.Load(f.at) == 0 {
				c.page.Store(f.at, out)
				c.cut = true
			}
		}
	}
}

func (c *graphs) stop() bool {
	if !c.waiting() {
		return true
	}
	c.g.ending.storing.Lock()
	defer c.g.ending.storing.Unlock()
	c.warn()
	c.release()
	return false
}

// resume lets a replay go on that waits after the group was closed, if nobody comes for it: the
// group had failed, or a replay was let go before. It reports whether one waits.
func (c *graphs) resume() bool {
	c.using.Lock()
	cut := c.cut
	c.using.Unlock()
	failure := c.g.Failure()
	if !cut && (failure == nil || failure.Code == fault.Closed) || !c.waiting() {
		return false
	}
	c.g.ending.storing.Lock()
	defer c.g.ending.storing.Unlock()
	c.release()
	return true
}
