package cudatest

import (
	"fmt"
	"slices"
)

// word is what is known about a word: who has written which values. Of a flag, that is what has
// happened since it went back to 0: an earlier write with the same value ends no wait any more.
type word struct {
	of        *allocation
	at        int
	writes    []*wordWrite // as they were executed; the oldest are forgotten
	waits     []*access    // of streams
	back      *access      // the last write that went back to 0
	enqueued  *wordWrite   // the last one that was enqueued
	writers   int          // of which each write has its number, from 1
	unblocked bool         // the host has stored a value that ends all waits
	loaded    map[*agent]uint64
	asked     map[*agent]int    // the write for which a Load may have been left out
	awaited   map[*agent]uint64 // the value for which a Reached may have been left out
}

// wordWrite is a value of a word.
type wordWrite struct {
	n     int
	value uint64
	known clock // what the writer knew
	by    *access
}

// mostWrites limits what is remembered of a word.
const mostWrites = 1024

// reached reports whether a word with this value is not before another.
func reached(value, wanted uint64) bool { return int64(value-wanted) >= 0 }

func (s *space) word(a *allocation, at int) *word {
	key := a.at + uint64(at)
	w := s.words[key]
	if w == nil {
		w = &word{of: a, at: at, loaded: map[*agent]uint64{}, asked: map[*agent]int{},
			awaited: map[*agent]uint64{}}
		s.words[key] = w
	}
	return w
}

func (w *word) number() int {
	w.writers++
	return w.writers
}

// noteWrite numbers a write when it is enqueued.
func (w *word) noteWrite(write *wordWrite) {
	write.n = w.number()
	w.enqueued = write
}

// wrote returns the last write of this value.
func (w *word) wrote(value uint64) *wordWrite {
	for _, write := range slices.Backward(w.writes) {
		if write.value == value {
			return write
		}
	}
	return nil
}

// freed returns the first write that ends a wait for the value: with another schedule, the wait
// would have ended there.
func (w *word) freed(wanted uint64) *wordWrite {
	for _, write := range w.writes {
		if reached(write.value, wanted) {
			return write
		}
	}
	return nil
}

// last returns the last write.
func (w *word) last() *wordWrite {
	if len(w.writes) == 0 {
		return nil
	}
	return w.writes[len(w.writes)-1]
}

// goesBack reports whether a write is the one by which a flag goes back to 0.
func (w *word) goesBack(value uint64) bool {
	last := w.last()
	return last != nil && value == 0 && !reached(value, last.value)
}

// wrote notes a write that is executed now, with what its writer knows.
func (d *Driver) wrote(w *word, write *wordWrite, by *access, known clock) {
	if !w.unblocked {
		d.checkWriter(w, by, write.value, known)
	}
	write.known, write.by = slices.Clone(known), by
	if w.goesBack(write.value) {
		w.writes, w.waits, w.back = nil, nil, by
		clear(w.awaited)
	}
	if len(w.writes) >= mostWrites {
		w.writes = append([]*wordWrite(nil), w.writes[mostWrites/2:]...)
	}
	w.writes = append(w.writes, write)
}

// checkWriter reports a second writer of a word, and values that go back, but for 0.
func (d *Driver) checkWriter(w *word, by *access, value uint64, known clock) {
	last := w.last()
	if last == nil {
		return
	}
	if !last.by.before(by, known) {
		d.report(Race, "writers"+last.by.site.String()+by.site.String(),
			"a word has two writers, which nothing orders:\n\t%s\n\t%s", last.by.text(), by.text())
	}
	switch {
	case w.goesBack(value):
		for _, wait := range w.waits {
			if !wait.before(by, known) {
				d.flagRace(wait, by)
			}
		}
	case !reached(value, last.value):
		d.report(Misuse, "back"+by.site.String(), "a word goes back from %d to %d: %s",
			last.value, value, by.text())
	}
}

// checkWait reports a wait for a flag that nothing orders behind the last write of 0: with another
// schedule, the value before it would have ended the wait.
func (d *Driver) checkWait(w *word, by *access, known clock) {
	if w.back != nil && !w.unblocked && !w.back.before(by, known) {
		d.flagRace(w.back, by)
	}
	w.waits = replaceKnown(w.waits, by, known)
}

func (d *Driver) flagRace(a, b *access) {
	d.report(Race, "flag"+a.site.String()+b.site.String(),
		"nothing orders a wait for a flag and the write of 0 to it:\n\t%s\n\t%s", a.text(), b.text())
}

// lastText says who has written a word last.
func (w *word) lastText() string {
	last := w.last()
	if last == nil {
		return "nobody in this process has written it"
	}
	return fmt.Sprintf("%d was written last, by %s", last.value, last.by.byText())
}
