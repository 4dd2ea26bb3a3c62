package cudatest

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/cuda"
)

// stream is a queue of work.
type stream struct {
	native    uintptr
	c         *context // that made it
	device    *device
	index     int // among all of the machine, from 1
	queue     *queue
	agent     *agent
	blocks    []*agent   // of kernels that wait
	enqueued  int        // operations so far
	pending   int        // those that have not ended
	running   *operation // a table that has begun
	elapsed   time.Duration
	held      bool
	destroyed bool
	capture   *capture
	made      site
}

// handle is a stream as a context has it, made or adopted.
type handle struct {
	c       *context
	native  uintptr
	s       *stream // nil if there is no such stream
	adopted bool
}

func (d *Driver) newStream(c *context) *stream {
	dev := c.device
	s := &stream{c: c, device: dev, index: len(d.streams) + 1, made: here()}
	s.native = uintptr(0x5000 + 16*s.index)
	s.queue = d.nextQueue(c)
	s.agent = d.newAgent(fmt.Sprintf("stream %d of context %d", s.index, c.index), false)
	d.streams = append(d.streams, s)
	return s
}

// begin checks whether a call with the stream is legal here and now.
func (h *handle) begin(call string, waits bool) error {
	if err := h.c.begin(call, waits); err != nil {
		return err
	}
	return h.legal(call, waits)
}

func (h *handle) legal(call string, waits bool) error {
	d := h.c.d
	if h.s == nil || h.s.destroyed {
		d.misuse("%s of stream %#x, which does not exist", call, h.native)
		return gone(call)
	}
	if h.native == 0 && len(d.captures) > 0 && !d.threads[threadID()].relaxed() {
		for _, c := range d.captures {
			c.invalid = true
		}
		return failure(call, captureImplicit)
	}
	if waits && h.s.capture != nil {
		h.s.capture.invalid = true
		return failure(call, captureForbids)
	}
	return nil
}

func (h *handle) Native() uintptr { return h.native }

func (h *handle) Copy(to, from cuda.Ptr, bytes int) error {
	const call = "cuMemcpyAsync"
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(call, false); err != nil {
		return err
	}
	if bytes < 0 {
		return invalid(call)
	}
	d.enqueue(h, copyWork{to, from, bytes})
	return nil
}

func (h *handle) Words(ops []cuda.WordOp) error {
	const call = "cuStreamBatchMemOp"
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(call, false); err != nil {
		return err
	}
	if d.o.Faults.NoWords {
		return failure(call, notSupported)
	}
	for _, op := range ops {
		a, why := d.find(op.At, 8)
		switch {
		case op.At%8 != 0:
			d.misuse("a word at %#x, which is not aligned to 8 bytes", uint64(op.At))
			return invalid(call)
		case why != "":
			d.report(Address, why, "a word outside of all memory: %s, at %s", why, here())
			return invalid(call)
		case a.space != d.host:
			d.misuse("a word in %v, which is no registered memory", a)
		}
	}
	ops = slices.Clone(ops)
	for i, op := range ops {
		w := &wordWork{op: op, behind: ops[i+1:]}
		if h.s.capture == nil {
			if d.leavesOutWord(h.s, op) {
				continue
			}
			w.noteWrite(d)
		}
		d.enqueue(h, w)
	}
	return nil
}

func (h *handle) Wait(e cuda.Event) error {
	const call = "cuStreamWaitEvent"
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(call, false); err != nil {
		return err
	}
	ev, ok := e.(*event)
	if !ok {
		d.misuse("%s for an event of another driver", call)
		return invalid(call)
	}
	if ev.destroyed {
		d.misuse("%s for event %d after its Destroy", call, ev.index)
		return gone(call)
	}
	p := ev.last
	if p == nil {
		d.misuse("a wait for event %d, which was never recorded", ev.index)
		return invalid(call)
	}
	if p.capture != nil || h.s.capture != nil {
		return d.captureWait(h.s, p, ev)
	}
	if d.leaveOut(WaitEvent, "the wait of %s for event %d (%v)", h.s.agent.name, ev.index, p) {
		return nil
	}
	d.enqueue(h, waitWork{p, ev})
	return nil
}

func (h *handle) Done() (bool, error) {
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin("cuStreamQuery", true); err != nil {
		return false, err
	}
	if h.s.pending > 0 {
		return false, nil
	}
	if h.c.agent.clock.join(h.s.agent.clock) {
		d.noteProgress()
	}
	return true, nil
}

func (h *handle) Synchronize() error {
	const call = "cuStreamSynchronize"
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.begin(call, true); err != nil {
		return err
	}
	for last := h.s.enqueued; h.s.oldest() <= last; {
		d.moved.Wait()
		if d.closed {
			return failure(call, deinitialized)
		}
	}
	if lost := h.c.device.lost; lost != 0 {
		return failure(call, lost)
	}
	h.c.elapsed = max(h.c.elapsed, h.s.elapsed)
	if h.c.agent.clock.join(h.s.agent.clock) {
		d.noteProgress()
	}
	return nil
}

// oldest returns the number of the operation that the stream is at.
func (s *stream) oldest() int { return s.enqueued - s.pending + 1 }

func (h *handle) Destroy() error {
	d := h.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.adopted || h.s.destroyed {
		return nil
	}
	err := h.begin("cuStreamDestroy", false)
	if err != nil && !cuda.Lost(err) {
		return err
	}
	h.s.destroyed = true
	d.noteProgress()
	return err
}
