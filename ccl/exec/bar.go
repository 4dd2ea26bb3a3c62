package exec

import "github.com/goccl/goccl/ccl/fault"

// A rank that computes hears nothing of its links until it calls something, and then the data of
// all others may be there already: the call would end well, although the others have given it up.
// So a rank that breaks off also tells its peers by a control message, which a goroutine of theirs
// handles at once. From then on they refuse the collective in which the group has failed, and those
// after it. Calls before it go on: whoever has failed had ended them. What is under way ends as
// ever, when the links do, after what had been sent was read.

// controlFailed is the kind of that control message: then come four bytes that mean nothing, and
// the report.
const controlFailed = 'f'

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

// bar has the collective in which the group has failed refused, and those after it, and tells the
// peers to which there is a path. Calls whose programs are kept ask nobody whether they are
// allowed, so none is kept any more. A mismatch bars nothing: which rank is the odd one, each rank
// finds by its own call. The caller holds the lock.
func (c *Comm) bar(why *fault.Error, report []byte) {
	b := c.barred.Load()
	if why.Seq == 0 || why.Code == fault.Mismatch || b != nil && b.why.Seq <= why.Seq || c.opts.Control == nil {
		return
	}
	c.barred.Store(&barrier{why, report})
	c.cache.clear()
	message := append(inquiryHead(controlFailed, 0), report...)
	for peer, link := range c.opts.Links {
		if link != nil && c.unopened[peer] == nil && !c.lost[peer] {
			link.Tell(message)
		}
	}
}

// precedes reports whether what this rank is in, or calls next, comes before the call in which the
// group has failed elsewhere.
func (c *Comm) precedes(told *fault.Error) bool {
	switch {
	case told.Seq == 0 || c.messageCount > 0 || len(c.keyed) > 0:
		return false
	case c.head != nil:
		return c.head.seq < told.Seq
	}
	return c.Seq()+1 < told.Seq
}
