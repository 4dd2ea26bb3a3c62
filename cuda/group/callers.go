package group

import (
	"sync"

	"github.com/goccl/goccl/cuda"
)

// mostCallers bounds how many streams of callers a Group remembers.
const mostCallers = 256

// callers are the streams of the callers of a Group.
type callers struct {
	mu    sync.Mutex
	known map[uintptr]cuda.Stream // by handle
	at    cuda.Event              // where the caller's stream was at the last call
}

// Stream returns the caller's stream with a handle of the driver; 0 is the default stream. It
// allocates nothing for streams that were asked for before.
func (g *Group) Stream(native uintptr) cuda.Stream {
	c := &g.callers
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.known[native]; s != nil {
		return s
	}
	if len(c.known) >= mostCallers {
		clear(c.known)
	}
	s := g.ctx.Adopt(native)
	c.known[native] = s
	return s
}
