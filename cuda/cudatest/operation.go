package cudatest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/cuda"
)

// operation is one piece of work in a stream.
type operation struct {
	stream  *stream
	n       int // in its stream, from 1
	work    work
	known   clock // what the host knew when it enqueued it
	site    site
	since   time.Duration // of the host, when it enqueued it
	begun   bool          // a table
	dropped bool          // with the device
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
	// ready reports whether it can be done; else waits says what for.
	ready(d *Driver) bool
	waits(d *Driver) string
	run(d *Driver, op *operation)
}

// enqueue adds work to a stream, or to the graph that it captures.
func (d *Driver) enqueue(h *handle, w work) {
	s := h.s
	if s.capture != nil {
		s.capture.record(d, s, w)
		d.noteProgress()
		return
	}
	d.makeRoom(s, 1)
	d.push(s, w, h.c.agent.publish(), here()).since = h.c.elapsed
	d.noteProgress()
}

// makeRoom waits until a stream has room for some operations.
func (d *Driver) makeRoom(s *stream, n int) {
	for s.pending > 0 && s.pending+n > d.o.Depth && !d.closed && s.device.lost == 0 {
		d.moved.Wait()
	}
}

// push adds an operation to a stream, which comes after what a host knows.
func (d *Driver) push(s *stream, w work, known clock, at site) *operation {
	s.enqueued++
	s.pending++
	op := &operation{stream: s, n: s.enqueued, work: w, known: known, site: at}
	s.queue.pending = append(s.queue.pending, op)
	return op
}

func (a *allocation) has(p cuda.Ptr, bytes int) bool {
	return bytes > 0 && p < a.ptr+cuda.Ptr(len(a.memory)) && p+cuda.Ptr(bytes) > a.ptr
}

// illegal reports an access outside of all memory, which costs the device.
func (d *Driver) illegal(op *operation, why string) { d.wrong(op, illegalAddress, why) }

// wrong reports an access that costs the device: its calls return code.
func (d *Driver) wrong(op *operation, code int, why string) {
	d.report(Address, op.site.String(), "%s, enqueued at %s: %s: %s", op, op.site, op.work.text(d), why)
	d.lose(op.stream.device, code)
}

// reach returns the allocation that has all of the bytes, or says why the device of an operation
// has none there.
func (d *Driver) reach(op *operation, p cuda.Ptr, bytes int) (a *allocation, why string) {
	a, why = d.find(p, bytes)
	if why == "" && a.space != d.host && a.c != nil && op.stream.device != a.c.device {
		why = fmt.Sprintf("device %d has no access to %v: device %d has, which allocated or imported it",
			op.stream.device.index, a, a.c.device.index)
	}
	return a, why
}

// cover reports whether two accesses are to some of the same bytes, but not exactly the same.
func (a *access) cover(b *access) bool {
	apart := int64(a.of.at) + int64(a.at) - int64(b.of.at) - int64(b.at)
	return a.of.space == b.of.space && apart < int64(b.bytes) && -apart < int64(a.bytes) &&
		(apart != 0 || a.bytes != b.bytes)
}

type copyWork struct {
	to, from cuda.Ptr
	bytes    int
}

func (w copyWork) text(d *Driver) string {
	return fmt.Sprintf("copy to %s from %s", d.place(w.to, w.bytes), d.place(w.from, w.bytes))
}

func (w copyWork) uses(a *allocation) bool { return a.has(w.to, w.bytes) || a.has(w.from, w.bytes) }

func (w copyWork) ready(*Driver) bool { return true }

func (w copyWork) waits(*Driver) string { return "" }

func (w copyWork) run(d *Driver, op *operation) {
	if w.bytes == 0 {
		return
	}
	var places [2]*allocation
	for i, p := range []cuda.Ptr{w.from, w.to} {
		a, why := d.reach(op, p, w.bytes)
		if why != "" {
			d.illegal(op, why)
			return
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
	d.moveBytes(op, func() error {
		copy(to.part(w.to, w.bytes), from.part(w.from, w.bytes))
		return nil
	})
}

// moveBytes does what an operation does to memory, while others may call the driver.
func (d *Driver) moveBytes(op *operation, move func() error) {
	var err error
	d.running = op
	d.mu.Unlock()
	there := mapped(func() { err = move() })
	d.mu.Lock()
	d.running = nil
	switch {
	case !there:
		d.illegal(op, unmapped)
	case err != nil:
		d.report(Misuse, op.site.String(), "%s, enqueued at %s: %v", op, op.site, err)
	}
}

// wordWork is one operation of a batch. Each is enqueued by itself, as the contract has it: others
// may be executed between them, and it orders no more than its place in the stream does.
type wordWork struct {
	op     cuda.WordOp
	behind []cuda.WordOp // in the same batch, for texts
	write  *wordWrite
}

// noteWrite notes a write when it is enqueued.
func (w *wordWork) noteWrite(d *Driver) {
	if w.op.Wait {
		return
	}
	w.write = &wordWrite{value: w.op.Value}
	if a, why := d.find(w.op.At, 8); why == "" {
		a.space.word(a, int(w.op.At-a.ptr)).noteWrite(w.write)
	}
}

func (w *wordWork) text(d *Driver) string { return "words:" + wordText(d, w.op) }

func wordText(d *Driver, op cuda.WordOp) string {
	if op.Wait {
		return fmt.Sprintf(" wait for %d in %s", op.Value, d.place(op.At, 8))
	}
	return fmt.Sprintf(" write %d to %s", op.Value, d.place(op.At, 8))
}

func (w *wordWork) uses(a *allocation) bool { return a.has(w.op.At, 8) }

func (w *wordWork) ready(d *Driver) bool { return d.mayEnd(w.op) }

// mayEnd reports whether a wait has ended, or cannot be waited for. A write is none.
func (d *Driver) mayEnd(op cuda.WordOp) bool {
	a, why := d.find(op.At, 8)
	if !op.Wait || why != "" {
		return true
	}
	value, there := a.peek(int(op.At - a.ptr))
	return !there || reached(value, op.Value)
}

// waits names all waits of the batch that have not ended.
func (w *wordWork) waits(d *Driver) string {
	text := "waits"
	for i, op := range append([]cuda.WordOp{w.op}, w.behind...) {
		if d.mayEnd(op) {
			continue
		}
		if i > 0 {
			text += ", and"
		}
		a, _ := d.find(op.At, 8)
		at := int(op.At - a.ptr)
		value, _ := a.peek(at)
		text += fmt.Sprintf(" for the word at %s: it is %d, wanted %d; %s", d.place(op.At, 8),
			value, op.Value, a.space.word(a, at).lastText())
	}
	return text
}

func (w *wordWork) run(d *Driver, op *operation) {
	a, why := d.find(w.op.At, 8)
	if why != "" {
		d.illegal(op, why)
		return
	}
	acc := op.access("writes the word", a, w.op.At, 8)
	acc.word, acc.write = true, true
	there := false
	if w.op.Wait {
		acc.verb, acc.write = "waits for the word", false
		_, there = a.peek(acc.at)
	} else {
		there = mapped(func() { atomic.StoreUint64(a.value(acc.at), w.op.Value) })
	}
	if !there {
		d.illegal(op, unmapped)
		return
	}
	clock, word := &op.stream.agent.clock, a.space.word(a, acc.at)
	d.touch(acc, *clock)
	if !w.op.Wait {
		d.wrote(word, w.write, acc, *clock)
		return
	}
	d.checkWait(word, acc, *clock)
	if by := word.freed(w.op.Value); by != nil {
		clock.join(by.known)
	}
}

type recordWork struct {
	place *place
	what  fmt.Stringer // the event, or the end of a graph
}

func (w recordWork) text(*Driver) string { return fmt.Sprintf("record %v", w.what) }

func (w recordWork) uses(*allocation) bool { return false }

func (w recordWork) ready(*Driver) bool { return true }

func (w recordWork) waits(*Driver) string { return "" }

func (w recordWork) run(d *Driver, op *operation) {
	w.place.known, w.place.done = slices.Clone(op.stream.agent.clock), true
}

type waitWork struct {
	place *place
	what  fmt.Stringer
}

func (w waitWork) text(*Driver) string {
	return fmt.Sprintf("wait for %v (%v)", w.what, w.place)
}

func (w waitWork) uses(*allocation) bool { return false }

func (w waitWork) ready(*Driver) bool { return w.place.done }

func (w waitWork) waits(*Driver) string {
	return fmt.Sprintf("waits for %v, %v", w.what, w.place)
}

func (w waitWork) run(d *Driver, op *operation) {
	op.stream.agent.clock.join(w.place.known)
}
