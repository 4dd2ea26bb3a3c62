package cudatest

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goccl/goccl/cuda"
)

// operation is one piece of work in a stream.
type operation struct {
	stream  *stream
	n       int // in its stream, from 1
	work    work
	known   clock // what the host knew when it enqueued it
	site    site
	dropped bool // with the device
}

func (op *operation) String() string {
	return fmt.Sprintf("%s, operation %d", op.stream.agent.name, op.n)
}

// access is one by the operation.
func (op *operation) access(verb string, a *allocation, p cuda.Ptr, bytes int) *access {
	return &access{
		by: op.stream.agent, time: uint64(op.n), verb: verb,
		of: a, at: int(p - a.ptr), bytes: bytes, site: op.site,
	}
}

// work is what an operation does. All methods are called with the driver locked.
type work interface {
	text(d *Driver) string
	uses(a *allocation) bool
	// ready reports whether run gets any further; else waits says what for.
	ready(d *Driver, op *operation) bool
	waits(d *Driver) string
	// run reports whether the operation has ended.
	run(d *Driver, op *operation) bool
}

// enqueue adds work to a stream, or to the graph that it captures.
func (d *Driver) enqueue(h *handle, w work) {
	s := h.s
	if s.capture != nil {
		s.capture.recorded = append(s.capture.recorded, w.text(d))
		d.stir()
		return
	}
	for s.pending >= d.o.Depth && !d.closed && s.device.lost == 0 {
		d.moved.Wait()
	}
	s.enqueued++
	s.pending++
	op := &operation{stream: s, n: s.enqueued, work: w, known: h.c.agent.publish(), site: here()}
	s.queue.pending = append(s.queue.pending, op)
	d.stir()
}

func (a *allocation) has(p cuda.Ptr, bytes int) bool {
	return bytes > 0 && p < a.ptr+cuda.Ptr(len(a.memory)) && p+cuda.Ptr(bytes) > a.ptr
}

// illegal reports an access outside of all memory, which costs the device.
func (d *Driver) illegal(op *operation, why string) {
	d.report(Address, op.site.String(), "%s, enqueued at %s: %s: %s", op, op.site, op.work.text(d), why)
	d.lose(op.stream.device, illegalAddress)
}

type copyWork struct {
	to, from cuda.Ptr
	bytes    int
}

func (w copyWork) text(d *Driver) string {
	return fmt.Sprintf("copy to %s from %s", d.place(w.to, w.bytes), d.place(w.from, w.bytes))
}

func (w copyWork) uses(a *allocation) bool { return a.has(w.to, w.bytes) || a.has(w.from, w.bytes) }

func (w copyWork) ready(*Driver, *operation) bool { return true }

func (w copyWork) waits(*Driver) string { return "" }

func (w copyWork) run(d *Driver, op *operation) bool {
	if w.bytes == 0 {
		return true
	}
	var places [2]*allocation
	for i, p := range []cuda.Ptr{w.from, w.to} {
		a, why := d.find(p, w.bytes)
		if why == "" && a.space != d.host && a.c != nil && !d.reaches(op.stream.device, a.c.device) {
			why = fmt.Sprintf("device %d does not reach %v", op.stream.device.index, a)
		}
		if why != "" {
			d.illegal(op, why)
			return true
		}
		places[i] = a
	}
	from, to := places[0], places[1]
	known := op.stream.agent.clock
	read, write := op.access("reads", from, w.from, w.bytes), op.access("writes", to, w.to, w.bytes)
	write.write = true
	if apart := int64(from.at) + int64(read.at) - int64(to.at) - int64(write.at); from.space == to.space &&
		apart < int64(w.bytes) && -apart < int64(w.bytes) {
		d.report(Misuse, op.site.String(), "%s, enqueued at %s: a copy to itself: %s", op, op.site, w.text(d))
	}
	d.touch(read, known)
	d.touch(write, known)
	d.running = op
	d.mu.Unlock()
	there := mapped(func() { copy(to.part(w.to, w.bytes), from.part(w.from, w.bytes)) })
	d.mu.Lock()
	d.running = nil
	if !there {
		d.illegal(op, unmapped)
	}
	return true
}

// wordWork is a batch. The contract does not say that a write waits for the waits that stand before
// it, so it may come before them, and does not pass on what they have seen.
type wordWork struct {
	ops     []wordStep
	next    int
	started bool
	early   bool  // the writes come first
	known   clock // at the start
}

type wordStep struct {
	cuda.WordOp
	write *wordWrite
}

func (w *wordWork) text(d *Driver) string {
	text := "words:"
	for i, op := range w.ops {
		if i > 0 {
			text += ","
		}
		text += wordText(d, op.WordOp)
	}
	return text
}

func wordText(d *Driver, op cuda.WordOp) string {
	if op.Wait {
		return fmt.Sprintf(" wait for %d in %s", op.Value, d.place(op.At, 8))
	}
	return fmt.Sprintf(" write %d to %s", op.Value, d.place(op.At, 8))
}

func (w *wordWork) uses(a *allocation) bool {
	return slices.ContainsFunc(w.ops, func(op wordStep) bool { return a.has(op.At, 8) })
}

func (w *wordWork) ready(d *Driver, op *operation) bool {
	if !w.started {
		// What stands before the first wait can be done.
		return !w.ops[0].Wait || slices.ContainsFunc(w.ops, func(s wordStep) bool { return !s.Wait }) ||
			w.ended(d, w.ops[0].WordOp)
	}
	return w.ended(d, w.ops[w.next].WordOp)
}

// ended reports whether a wait has ended, or cannot be waited for.
func (w *wordWork) ended(d *Driver, op cuda.WordOp) bool {
	a, why := d.find(op.At, 8)
	if why != "" {
		return true
	}
	value, there := a.peek(int(op.At - a.ptr))
	return !there || reached(value, op.Value)
}

func (w *wordWork) waits(d *Driver) string {
	text := ""
	for _, op := range w.ops[w.next:] {
		a, why := d.find(op.At, 8)
		if !op.Wait || why != "" || w.ended(d, op.WordOp) {
			continue
		}
		if text != "" {
			text += ", and for "
		}
		at := int(op.At - a.ptr)
		value, _ := a.peek(at)
		text += fmt.Sprintf("the word at %s: it is %d, wanted %d; %s", d.place(op.At, 8),
			value, op.Value, a.space.word(a, at).lastText())
	}
	return "waits for " + text
}

func (w *wordWork) run(d *Driver, op *operation) bool {
	if !w.started {
		w.started, w.early = true, d.random.IntN(2) == 0
		w.known = slices.Clone(op.stream.agent.clock)
		for i := range w.ops {
			if s := &w.ops[i]; w.early && !s.Wait && !w.write(d, op, s) {
				return true
			}
		}
	}
	for ; w.next < len(w.ops); w.next++ {
		s := &w.ops[w.next]
		if !s.Wait {
			if !w.early && !w.write(d, op, s) {
				return true
			}
			continue
		}
		if !w.ended(d, s.WordOp) {
			return false
		}
		a, why := d.find(s.At, 8)
		if why != "" {
			d.illegal(op, why)
			return true
		}
		acc := op.access("waits for the word", a, s.At, 8)
		if _, there := a.peek(acc.at); !there {
			d.illegal(op, unmapped)
			return true
		}
		acc.word = true
		d.touch(acc, w.known)
		if by := a.space.word(a, acc.at).freed(s.Value); by != nil {
			op.stream.agent.clock.join(by.known)
		}
	}
	return true
}

func (w *wordWork) write(d *Driver, op *operation, s *wordStep) bool {
	a, why := d.find(s.At, 8)
	if why != "" {
		d.illegal(op, why)
		return false
	}
	acc := op.access("writes the word", a, s.At, 8)
	acc.word, acc.write = true, true
	if !mapped(func() { atomic.StoreUint64(a.value(acc.at), s.Value) }) {
		d.illegal(op, unmapped)
		return false
	}
	d.touch(acc, w.known)
	word := a.space.word(a, acc.at)
	d.checkWriter(word, acc, s.Value, w.known)
	s.write.known, s.write.by, s.write.done = w.known, acc, true
	return true
}

type recordWork struct {
	place *place
	event int
}

func (w recordWork) text(*Driver) string { return fmt.Sprintf("record event %d", w.event) }

func (w recordWork) uses(*allocation) bool { return false }

func (w recordWork) ready(*Driver, *operation) bool { return true }

func (w recordWork) waits(*Driver) string { return "" }

func (w recordWork) run(d *Driver, op *operation) bool {
	w.place.known, w.place.done = slices.Clone(op.stream.agent.clock), true
	return true
}

type waitWork struct {
	place *place
	event int
}

func (w waitWork) text(*Driver) string {
	return fmt.Sprintf("wait for event %d (%v)", w.event, w.place)
}

func (w waitWork) uses(*allocation) bool { return false }

func (w waitWork) ready(*Driver, *operation) bool { return w.place.done }

func (w waitWork) waits(*Driver) string {
	return fmt.Sprintf("waits for event %d, %v", w.event, w.place)
}

func (w waitWork) run(d *Driver, op *operation) bool {
	op.stream.agent.clock.join(w.place.known)
	return true
}
