package cudatest

import "fmt"

// word is what is known about a word: who has written which values.
type word struct {
	of      *allocation
	at      int
	writes  []*wordWrite // as they were enqueued or stored; the oldest are forgotten
	next    int          // number of the next write, from 1
	loaded  map[*agent]uint64
	asked   map[*agent]int    // the write for which a Load may have been left out
	awaited map[*agent]uint64 // the value for which a Reached may have been left out
}

// wordWrite is a value of a word.
type wordWrite struct {
	n      int
	value  uint64
	known  clock   // what the writer knew, once it is done
	by     *access // nil until it is done
	done   bool
	stream bool // by a stream
}

// mostWrites limits what is remembered of a word.
const mostWrites = 1024

// reached reports whether a word with this value is not before another.
func reached(value, wanted uint64) bool { return int64(value-wanted) >= 0 }

func (s *space) word(a *allocation, at int) *word {
	key := a.at + uint64(at)
	w := s.words[key]
	if w == nil {
		w = &word{of: a, at: at, next: 1, loaded: map[*agent]uint64{}, asked: map[*agent]int{},
			awaited: map[*agent]uint64{}}
		s.words[key] = w
	}
	return w
}

func (w *word) append(write *wordWrite) {
	write.n = w.next
	w.next++
	if len(w.writes) >= mostWrites {
		w.writes = append([]*wordWrite(nil), w.writes[mostWrites/2:]...)
	}
	w.writes = append(w.writes, write)
}

// wrote returns the last write of this value.
func (w *word) wrote(value uint64) *wordWrite {
	for i := len(w.writes) - 1; i >= 0; i-- {
		if write := w.writes[i]; write.done && write.value == value {
			return write
		}
	}
	return nil
}

// freed returns the first write that ends a wait for the value: with another schedule, the wait
// would have ended there.
func (w *word) freed(wanted uint64) *wordWrite {
	for _, write := range w.writes {
		if write.done && reached(write.value, wanted) {
			return write
		}
	}
	return nil
}

// last returns the last write that was executed.
func (w *word) last() *wordWrite {
	for i := len(w.writes) - 1; i >= 0; i-- {
		if w.writes[i].done {
			return w.writes[i]
		}
	}
	return nil
}

// checkWriter reports a second writer of a word, and values that go back.
func (d *Driver) checkWriter(w *word, by *access, value uint64, known clock) {
	last := w.last()
	if last == nil {
		return
	}
	if !last.by.before(by, known) {
		d.report(Race, "writers"+last.by.site.String()+by.site.String(),
			"a word has two writers, which nothing orders:\n\t%s\n\t%s", last.by.text(), by.text())
	}
	if !reached(value, last.value) {
		d.report(Misuse, "back"+by.site.String(), "a word goes back from %d to %d: %s",
			last.value, value, by.text())
	}
}

// lastText says who has written a word last.
func (w *word) lastText() string {
	last := w.last()
	if last == nil {
		return "nobody in this process has written it"
	}
	return fmt.Sprintf("%d was written last, by %s", last.value, last.by.byText())
}
