package cudatest

import (
	"slices"
	"sync/atomic"

	"github.com/goccl/goccl/cuda"
)

// capture is a graph that streams are recording.
type capture struct {
	id       uint64
	origin   *stream
	lanes    []*capturing // the first is that of origin
	steps    []step
	recorded []string
	retained []retained
	invalid  bool // something illegal was called meanwhile
}

// capturing is a stream in a capture.
type capturing struct {
	stream *stream
	work   uint64 // what it has recorded, but for records and waits
	seen   clock  // of each lane, how much of its work comes before what is recorded next
}

// step is what one call has recorded.
type step struct {
	lane int
	work work
	site site
}

// retained is what Retain was given.
type retained struct {
	c       *context
	release func()
}

// captures counts those of the process.
var captures atomic.Uint64

// BeginCapture puts a stream in capture. What is enqueued in it is not executed. Streams that wait
// for an event of the capture join it.
func (d *Driver) BeginCapture(s cuda.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := s.(*handle)
	h.s.capture = &capture{id: captures.Add(1), origin: h.s, lanes: []*capturing{{stream: h.s}}}
	d.captures = append(d.captures, h.s.capture)
	d.noteProgress()
}

// EndCapture ends it, and returns what was recorded. It fails if something illegal was called, or
// if a stream of the capture has work that the one in which it began has not waited for.
func (d *Driver) EndCapture(s cuda.Stream) (*Graph, error) {
	const call = "cuStreamEndCapture"
	d.mu.Lock()
	defer d.mu.Unlock()
	h := s.(*handle)
	c := h.s.capture
	switch {
	case c == nil:
		return nil, failure(call, captureInvalid)
	case c.origin != h.s:
		return nil, failure(call, captureUnmatched)
	}
	for _, each := range d.streams {
		if each.capture == c {
			each.capture = nil
		}
	}
	d.captures = slices.DeleteFunc(d.captures, func(other *capture) bool { return other == c })
	d.noteProgress()
	switch {
	case c.invalid:
		d.due = append(d.due, c.retained...)
		return nil, failure(call, captureInvalid)
	case !c.joined():
		d.due = append(d.due, c.retained...)
		return nil, failure(call, captureUnjoined)
	}
	return d.newGraph(h.c, c), nil
}

// joined reports whether the origin has waited for all work.
func (c *capture) joined() bool {
	for i, l := range c.lanes[1:] {
		if c.lanes[0].seen.of(i+1) < l.work {
			return false
		}
	}
	return true
}

// lane returns the index of a stream, which joins the capture if it is new.
func (c *capture) lane(s *stream) int {
	for i, l := range c.lanes {
		if l.stream == s {
			return i
		}
	}
	c.lanes = append(c.lanes, &capturing{stream: s})
	return len(c.lanes) - 1
}

// record adds to the graph what is enqueued in a stream.
func (c *capture) record(d *Driver, s *stream, w work) {
	lane := c.lane(s)
	l := c.lanes[lane]
	switch w := w.(type) {
	case recordWork:
		w.place.seen = slices.Clone(l.seen)
	case waitWork:
		l.seen.join(w.place.seen)
	default:
		l.work++
		l.seen.set(lane, l.work)
	}
	c.steps = append(c.steps, step{lane, w, here()})
	c.recorded = append(c.recorded, w.text(d))
}

// captureWait is a wait of which one side is in capture.
func (d *Driver) captureWait(s *stream, p *place, e *event) error {
	const call = "cuStreamWaitEvent"
	switch {
	case p.capture == nil:
		s.capture.invalid = true
		return failure(call, captureIsolation)
	case !slices.Contains(d.captures, p.capture):
		return failure(call, capturedEvent)
	case s.capture != nil && s.capture != p.capture:
		s.capture.invalid = true
		return failure(call, captureIsolation)
	}
	s.capture = p.capture
	s.capture.record(d, s, waitWork{p, e})
	d.noteProgress()
	return nil
}

const captureInfo = "cuStreamGetCaptureInfo"

func (h *handle) Capture() (uint64, error) {
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(captureInfo, false); err != nil {
		return 0, err
	}
	if h.s.capture == nil {
		return 0, nil
	}
	return h.s.capture.id, nil
}

func (h *handle) Retain(release func()) error {
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(captureInfo, false); err != nil {
		return err
	}
	c := h.s.capture
	switch {
	case c == nil:
		d.misuse("Retain of %s, which is not in capture", h.s.agent.name)
		return invalid(captureInfo)
	case c.invalid:
		return failure(captureInfo, captureInvalid)
	}
	for _, call := range []string{"cuUserObjectCreate", "cuGraphRetainUserObject"} {
		if err := d.fails(call); err != nil {
			return err
		}
	}
	c.retained = append(c.retained, retained{h.c, release})
	d.noteProgress()
	return nil
}
