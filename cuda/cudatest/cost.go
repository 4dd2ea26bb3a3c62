package cudatest

import (
	"time"

	"github.com/goccl/goccl/cuda"
)

// Cost is what operations take, by a clock that nothing else moves: each stream has a time, and the
// host waits until that of the stream.
type Cost struct {
	Operation time.Duration // of everything that a stream executes
	// Copy returns what copies by a device take beside that, from or to memory of a device, or of
	// the host (-1).
	Copy func(device, memory int) (latency time.Duration, bytesPerSecond float64)
}

// clocked is a context with a clock.
type clocked struct{ *context }

// Elapsed returns the time of the host.
func (c clocked) Elapsed() time.Duration {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.elapsed
}

func contextOf(c cuda.Context) *context {
	if c, ok := c.(clocked); ok {
		return c.context
	}
	return c.(*context)
}

// spend moves the time of a stream on, behind that at which the host has enqueued the operation.
func (d *Driver) spend(op *operation) {
	if d.o.Cost == nil {
		return
	}
	s := op.stream
	s.elapsed = max(s.elapsed, op.since) + d.o.Cost.Operation
	if w, ok := op.work.(copyWork); ok && d.o.Cost.Copy != nil {
		took := time.Duration(0)
		for _, p := range [2]cuda.Ptr{w.from, w.to} {
			a, why := d.find(p, w.bytes)
			if why != "" {
				continue
			}
			latency, rate := d.o.Cost.Copy(s.device.index, d.owner(a))
			took = max(took, latency+time.Duration(float64(w.bytes)/rate*float64(time.Second)))
		}
		s.elapsed += took
	}
}

// owner returns the device whose memory it is, -1 for the host.
func (d *Driver) owner(a *allocation) int {
	switch {
	case a.space == d.host:
		return -1
	case a.imported:
		return d.ownerOf(a.descriptor).index
	case a.c == nil: // somebody else's, on the first device
		return 0
	}
	return a.c.device.index
}
