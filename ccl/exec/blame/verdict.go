package blame

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// What a timeout says is what was seen: whom this rank waits for, and what the others have answered
// when they were asked (inquiry.go). Who waits itself is not to blame.

const mostEdges = 8 // "2 for 1", or ranks and what they wait in, in a message

// Kind is how the ranks match an operation.
type Kind int

const (
	Ordered Kind = iota // a collective, by its number
	Keyed               // a collective, by a key
	Message             // a send or receive
)

// Operation is what there is to say of an operation that has not ended.
type Operation struct {
	Kind     Kind
	Name     string
	Seq      uint64
	Peer     int      // of a message
	Waits    []int    // the ranks that it waits for
	Where    []string // how far it has come with each of them
	Else     string   // what keeps it if it waits for none
	Exchange string   // what the ranks tell each other before it begins; "" when it has begun
}

// TimedOut returns the error of an operation that is past its deadline. It names the ranks that are
// to blame, or else those that the operation waits for.
func (q *Inquiry) TimedOut(op *Operation) *fault.Error {
	if e := q.blame(op); e != nil {
		return e
	}
	e := &fault.Error{Code: fault.Timeout, Peer: fault.NoPeer, Text: op.Else}
	if len(op.Waits) > 0 {
		var chain edges
		chain.add(q.opts.rank(), op.Waits, op.Where)
		e.Peer, e.Text = op.Waits[0], chain.String()
		if op.Kind == Keyed {
			e.Ranks = op.Waits
		}
		e.Text += q.alike(op)
	}
	if op.Exchange != "" {
		e.Text += ", while " + op.Exchange + " were exchanged"
	}
	return e
}

// alike says of the ranks that an operation waits for what can be said although none is to blame.
func (q *Inquiry) alike(op *Operation) string {
	if q.opts.Control == nil || !q.over {
		return "; " + fault.Ranks(op.Waits[:min(len(op.Waits), mostEdges)]) + " may be late, or in another call"
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, peer := range op.Waits {
		if q.answers[peer].Op != op.Name {
			return ""
		}
	}
	return "; all of them are in the same call"
}

// blame returns an error that names the ranks at the ends of the chains that op waits at, or else
// those that are in something else, and wait. It is nil if the inquiry has found neither.
func (q *Inquiry) blame(op *Operation) *fault.Error {
	if q.opts.Control == nil || !q.over {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	guilty := map[int]string{}
	accuse := func(peer int) {
		s, known := q.answers[peer]
		if !known && (q.hasLeft(peer) || q.ending.endedBecauseOfOthers(peer)) {
			return
		}
		if why := s.guilt(known, op); why != "" && slices.Contains(q.asked, peer) {
			guilty[peer] = why
		}
	}
	var chains edges
	waits := slices.Clone(op.Waits)
	chains.add(q.opts.rank(), waits, op.Where)
	for at := 0; at < len(waits); at++ { // it grows
		peer := waits[at]
		if peer == q.opts.rank() || slices.Contains(waits[:at], peer) {
			continue
		}
		accuse(peer)
		next := q.answers[peer].Waits
		chains.add(peer, next, nil)
		waits = append(waits, next...)
	}
	if op.Kind != Message { // a collective needs all ranks
		for _, peer := range q.asked {
			accuse(peer)
		}
	}
	e := &fault.Error{Code: fault.Timeout, Ranks: slices.Sorted(maps.Keys(guilty))}
	for _, peer := range e.Ranks {
		e.Text += fmt.Sprintf("rank %d %s; ", peer, guilty[peer])
	}
	if len(guilty) == 0 {
		e.Ranks, e.Text = q.elsewhere(op, waits)
	}
	if len(e.Ranks) == 0 {
		return nil
	}
	e.Peer = e.Ranks[0]
	e.Text = strings.TrimSuffix(e.Text+chains.String(), "; ")
	return e
}

// elsewhere returns the ranks that wait in something that op cannot go on before, and those that
// they wait for: between them calls differ. The mutex is held.
func (q *Inquiry) elsewhere(op *Operation, waits []int) (ranks []int, text string) {
	who := waits
	if op.Kind == Ordered {
		who = q.asked
	}
	more := 0
	for _, peer := range slices.Compact(slices.Sorted(slices.Values(who))) {
		s := q.answers[peer]
		if peer == q.opts.rank() || s.Op == "" || op.Kind == Ordered && s.Seq >= op.Seq {
			continue
		}
		ranks = append(append(ranks, peer), s.Waits...)
		if more++; more <= mostEdges {
			text += fmt.Sprintf("rank %d waits in %s; ", peer, s.Op)
		}
	}
	if more -= mostEdges; more > 0 {
		text += fmt.Sprintf("so do %d more; ", more)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks), text
}

// guilt says why a rank is to blame that op does not end; it is empty if the rank is not.
func (s *Standing) guilt(answered bool, op *Operation) string {
	switch {
	case !answered:
		return "does not answer; its process may be stopped, or its host cut off"
	case s.Busy || s.Op != "": // it is at work, or waits itself
		return ""
	case op.Kind == Ordered && s.Seq >= op.Seq: // it has done its part
		return ""
	case s.Seq == 0:
		return "is in no call, and has not made one yet"
	case s.Idle == 0:
		return fmt.Sprintf("is in no call since seq %d", s.Seq)
	}
	return fmt.Sprintf("is in no call since seq %d, %.1f s ago", s.Seq, float64(s.Idle)/1e3)
}

// edges is who waits for whom, as a text: "rank 0 waits for 2 (4096 bytes so far), 2 for 1, 1 for
// 3".
type edges struct {
	text  strings.Builder
	count int
}

func (e *edges) add(from int, to []int, where []string) {
	for i, peer := range to {
		if e.count++; e.count > mostEdges {
			continue
		}
		before, verb := ", ", ""
		if e.count == 1 {
			before, verb = "rank ", "waits "
		}
		fmt.Fprintf(&e.text, "%s%d %sfor %d", before, from, verb, peer)
		if i < len(where) && where[i] != "" {
			fmt.Fprintf(&e.text, " (%s)", where[i])
		}
	}
}

func (e *edges) String() string {
	if more := e.count - mostEdges; more > 0 {
		return fmt.Sprintf("%s, and %d more", e.text.String(), more)
	}
	return e.text.String()
}
