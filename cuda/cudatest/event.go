package cudatest

import (
	"fmt"

	"github.com/goccl/goccl/cuda"
)

type event struct {
	c         *context
	index     int // among all of the machine, from 1
	last      *place
	destroyed bool
	made      site
}

// place is what one Record has marked.
type place struct {
	stream  *stream
	n       int // of the operation
	done    bool
	known   clock // what the stream knew there
	capture *capture
	seen    clock // of the lanes of the capture: how much of each comes before
}

func (e *event) String() string { return fmt.Sprintf("event %d", e.index) }

func (p *place) String() string {
	return fmt.Sprintf("recorded in %s, operation %d", p.stream.agent.name, p.n)
}

func (e *event) begin(call string, waits bool) error {
	if err := e.c.begin(call, waits); err != nil {
		return err
	}
	if e.destroyed {
		e.c.d.misuse("%s of event %d after its Destroy", call, e.index)
		return gone(call)
	}
	return nil
}

func (e *event) Record(on cuda.Stream) error {
	const call = "cuEventRecord"
	d := e.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := e.begin(call, false); err != nil {
		return err
	}
	h, ok := on.(*handle)
	if !ok {
		d.misuse("%s of event %d in a stream of another driver", call, e.index)
		return invalid(call)
	}
	if h.c.device != e.c.device {
		d.misuse("%s of event %d in a stream of another device", call, e.index)
		return failure(call, invalidHandle)
	}
	if err := h.legal(call, false); err != nil {
		return err
	}
	p := &place{stream: h.s, n: h.s.enqueued + 1, capture: h.s.capture}
	if p.capture == nil && d.leaveOut(RecordEvent, "the record of event %d in %s", e.index, h.s.agent.name) {
		if e.last == nil {
			p.done, e.last = true, p
		}
		return nil
	}
	e.last = p
	d.enqueue(h, recordWork{p, e})
	return nil
}

func (e *event) Done() (bool, error) {
	const call = "cuEventQuery"
	d := e.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := e.begin(call, true); err != nil {
		return false, err
	}
	switch {
	case e.last == nil:
		return true, nil
	case e.last.capture != nil:
		return false, failure(call, capturedEvent)
	case !e.last.done:
		return false, nil
	}
	if e.c.agent.clock.join(e.last.known) {
		d.noteProgress()
	}
	return true, nil
}

func (e *event) Destroy() error {
	d := e.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.destroyed {
		return nil
	}
	err := e.begin("cuEventDestroy", false)
	if err != nil && !cuda.Lost(err) {
		return err
	}
	e.destroyed = true
	delete(e.c.events, e)
	d.noteProgress()
	return err
}
