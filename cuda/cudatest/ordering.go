package cudatest

import (
	"fmt"

	"github.com/goccl/goccl/cuda"
)

// OrderingKind is the kind of an ordering call.
type OrderingKind string

const (
	WaitEvent   OrderingKind = "Stream.Wait"
	RecordEvent OrderingKind = "Event.Record"
	WaitWord    OrderingKind = "a word wait of a stream"
	WriteWord   OrderingKind = "a word write of a stream"
	// Load is the first Reached for a value, or the first Load after a stream was given a write of
	// the word to do. Left out, it returns the value at once.
	Load  OrderingKind = "Registered.Load"
	Store OrderingKind = "Registered.Store"
)

// Ordering is a call that orders what follows behind something else.
type Ordering struct {
	N    int // of all ordering calls of the machine, from 0
	Kind OrderingKind
	Text string // which it is, and where
}

func (o Ordering) String() string { return fmt.Sprintf("ordering %d: %s", o.N, o.Text) }

// Orderings returns the number of ordering calls so far.
func (d *Driver) Orderings() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.orderings
}

// Nth leaves out ordering call n: leave is for Options.LeaveOut, and left says afterwards which
// call that was, if there was one.
func Nth(n int) (leave func(Ordering) bool, left func() (Ordering, bool)) {
	done := make(chan Ordering, 1)
	leave = func(o Ordering) bool {
		if o.N == n {
			done <- o
		}
		return o.N == n
	}
	left = func() (Ordering, bool) {
		select {
		case o := <-done:
			done <- o
			return o, true
		default:
			return Ordering{}, false
		}
	}
	return leave, left
}

// leaveOut counts an ordering call, and reports whether it is to be left out.
func (d *Driver) leaveOut(kind OrderingKind, format string, args ...any) bool {
	n := d.orderings
	d.orderings++
	if d.o.LeaveOut == nil {
		return false
	}
	return d.o.LeaveOut(Ordering{n, kind, fmt.Sprintf(format, args...) + ", at " + here().String()})
}

func (d *Driver) leavesOutWord(s *stream, op cuda.WordOp) bool {
	kind := WriteWord
	if op.Wait {
		kind = WaitWord
	}
	return d.leaveOut(kind, "%s:%s", s.agent.name, wordText(d, op))
}

// loadsEarly counts the first Load after a write was enqueued. If it is left out, it returns the
// value that the stream will write.
func (d *Driver) loadsEarly(r *registered, w *word) (value uint64, left bool) {
	write := w.enqueued
	if write == nil || write.n <= w.asked[r.c.agent] {
		return 0, false
	}
	w.asked[r.c.agent] = write.n
	return write.value, d.leaveOut(Load, "a load of allocation %d byte %d, for the value %d, by %s",
		r.index, w.at, write.value, r.c.agent.name)
}
