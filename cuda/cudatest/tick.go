package cudatest

import (
	"fmt"
	"sync/atomic"

	"github.com/goccl/goccl/cuda"
)

// tickWork is a kernel that adds one to a word: a write of it.
type tickWork struct {
	*launchWork
	write *wordWrite
}

func (w *tickWork) at() cuda.Ptr { return w.accesses[0].At }

func (w *tickWork) text(d *Driver) string {
	return fmt.Sprintf("%s, which adds one to the word at %s", w.name, d.place(w.at(), 8))
}

func (d *Driver) enqueueTick(h *handle, w *tickWork) {
	if a, why := d.find(w.at(), 8); why == "" && a.space != d.host {
		d.misuse("a tick in %v, which is no registered memory", a)
	}
	if h.s.capture == nil {
		if d.leavesOutTick(h.s, w) {
			return
		}
		w.noteWrite(d)
	}
	d.enqueue(h, w)
}

func (d *Driver) leavesOutTick(s *stream, w *tickWork) bool {
	return d.leaveOut(WriteWord, "%s: %s", s.agent.name, w.text(d))
}

// noteWrite numbers the write when it is enqueued. Its value is a guess until it is executed: one
// more than that of the write before.
func (w *tickWork) noteWrite(d *Driver) {
	w.write = &wordWrite{}
	a, why := d.find(w.at(), 8)
	if why != "" || w.at()%8 != 0 {
		return
	}
	at := int(w.at() - a.ptr)
	word := a.space.word(a, at)
	if word.enqueued != nil {
		w.write.value = word.enqueued.value + 1
	} else {
		value, _ := a.peek(at)
		w.write.value = value + 1
	}
	word.noteWrite(w.write)
}

func (w *tickWork) run(d *Driver, op *operation) {
	a, why := d.reach(op, w.at(), 8)
	switch {
	case why != "":
		d.illegal(op, why)
		return
	case w.at()%8 != 0:
		d.wrong(op, misalignedAddress, fmt.Sprintf("%#x is not aligned to 8 bytes", uint64(w.at())))
		return
	}
	acc := op.access("counts the word", a, w.at(), 8)
	acc.word, acc.write = true, true
	if !mapped(func() { w.write.value = atomic.AddUint64(a.value(acc.at), 1) }) {
		d.illegal(op, unmapped)
		return
	}
	clock := op.stream.agent.clock
	d.touch(acc, clock)
	d.wrote(a.space.word(a, acc.at), w.write, acc, clock)
}
