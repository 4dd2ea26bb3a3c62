package group

import "github.com/goccl/goccl/cuda"

// mostCallers bounds how many streams of callers a Group remembers.
const mostCallers = 256

// Stream returns the caller's stream with a handle of the driver; 0 is the default stream. It
// allocates nothing for streams that were asked for before.
func (g *Group) Stream(native uintptr) cuda.Stream {
	g.adopting.Lock()
	defer g.adopting.Unlock()
	if s := g.callers[native]; s != nil {
		return s
	}
	if len(g.callers) >= mostCallers {
		clear(g.callers)
	}
	s := g.ctx.Adopt(native)
	g.callers[native] = s
	return s
}
