package cudatest

import (
	"slices"

	"github.com/goccl/goccl/cuda"
)

// capture is a graph that streams are recording.
type capture struct {
	origin   *stream
	recorded []string
	invalid  bool // something illegal was called meanwhile
}

// BeginCapture puts a stream in capture. What is enqueued in it is not executed. Streams that wait
// for an event of the capture join it.
func (d *Driver) BeginCapture(s cuda.Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := s.(*handle)
	h.s.capture = &capture{origin: h.s}
	d.captures = append(d.captures, h.s.capture)
	d.stir()
}

// EndCapture ends it, and returns what was recorded. It fails if something illegal was called.
func (d *Driver) EndCapture(s cuda.Stream) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := s.(*handle).s.capture
	for _, each := range d.streams {
		if each.capture == c {
			each.capture = nil
		}
	}
	d.captures = slices.DeleteFunc(d.captures, func(other *capture) bool { return other == c })
	d.stir()
	if c == nil || c.invalid {
		return nil, failure("cuStreamEndCapture", captureInvalid)
	}
	return c.recorded, nil
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
	s.capture.recorded = append(s.capture.recorded, waitWork{p, e.index}.text(d))
	return nil
}
