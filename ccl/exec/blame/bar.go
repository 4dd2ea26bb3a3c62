package blame

import (
	"bytes"

	"github.com/goccl/goccl/ccl/fault"
)

// A rank that computes hears nothing of its links until it calls something, and then the data of
// all others may be there already: the call would end well, although the others have given it up.
// So a rank that breaks off also tells its peers by a control message, which a goroutine of theirs
// handles at once. From then on they refuse the collective in which the group has failed, and those
// after it. Calls before it go on: whoever has failed had ended them. What is under way ends as
// ever, when the links do, after what had been sent was read.

// failure is such a message.
type failure struct {
	peer   int
	report []byte
}

// barrier is the failure in a collective.
type barrier struct {
	why    *fault.Error
	report []byte
}

func (e *Ending) hearFailure(peer int, report []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.failures) < e.opts.size() {
		e.failures = append(e.failures, failure{peer, bytes.Clone(report)})
	}
}

// attend handles the messages that have come.
func (e *Ending) attend() {
	e.mu.Lock()
	failures := e.failures
	e.failures = nil
	e.mu.Unlock()
	for _, each := range failures {
		if told := e.parse(each.peer, each.report); told != nil {
			e.bar(told, each.report)
		}
	}
}

// bar has the collective in which the group has failed refused, and those after it, and tells the
// peers to which there is a path. A mismatch bars nothing: which rank is the odd one, each rank
// finds by its own call.
func (e *Ending) bar(why *fault.Error, report []byte) {
	b := e.barred.Load()
	if why.Seq == 0 || why.Code == fault.Mismatch || b != nil && b.why.Seq <= why.Seq || e.opts.Control == nil {
		return
	}
	e.barred.Store(&barrier{why, report})
	e.opts.Barred()
	message := append(head(controlFailed, 0), report...)
	for peer, link := range e.opts.Links.All {
		if link != nil && !e.opts.Links.Unopened(peer) && !e.opts.Links.Lost(peer) {
			link.Tell(message)
		}
	}
}

// Barred returns why collectives are refused, from that with its number on; nil if they are not.
// Any thread may call it.
func (e *Ending) Barred() *fault.Error {
	if b := e.barred.Load(); b != nil {
		return b.why
	}
	return nil
}
