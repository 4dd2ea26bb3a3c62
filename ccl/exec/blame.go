package exec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
)

// What a timeout says is what was seen: whom this rank waits for, and what the others have answered
// when they were asked (inquiry.go). Who waits itself is not to blame.

const mostEdges = 8 // "2 for 1", or ranks and what they wait in, in a message

// timedOut returns the error of an operation that is past its deadline. It names the ranks that are
// to blame, or else those that the operation waits for.
func (c *Comm) timedOut(op *Op) *fault.Error {
	waits, where := c.waitsOf(op)
	if e := c.blame(op, waits, where); e != nil {
		return e
	}
	e := &fault.Error{Code: fault.Timeout, Peer: fault.NoPeer}
	f := &c.frame
	switch {
	case len(waits) > 0:
		var chain edges
		chain.add(c.rank, waits, where)
		e.Peer, e.Text = waits[0], chain.String()
		if op.keyed != nil {
			e.Ranks = waits
		}
		e.Text += c.alike(op, waits)
	case op.keyed == nil && op.call.Coll.Valid() && op != f.op && f.op != nil:
		e.Text = fmt.Sprintf("behind %s, which has not ended", f.op.describe())
	case op.keyed == nil && op.call.Coll.Valid() && op != f.op:
		e.Text = "its turn did not come"
	case !op.call.Coll.Valid():
		e.Text = "no such message has come from any rank"
	default:
		e.Text = "it does not end"
	}
	if op == f.op && f.counting {
		e.Text += ", while the lengths of blocks were exchanged"
	}
	return e
}

// waitsOf returns the ranks that an operation waits for, and how far it has come.
func (c *Comm) waitsOf(op *Op) (ranks []int, where []string) {
	switch {
	case op == c.frame.op:
		return c.awaited()
	case op.keyed != nil:
		ranks = op.keyed.awaited()
		return ranks, slices.Repeat([]string{"nothing of this call has come"}, len(ranks))
	case op.call.Coll.Valid() || op.call.Root == p2p.AnySource:
		return nil, nil
	case op.call.Coll == dtype.Send:
		return []int{op.call.Root}, []string{"it has not taken the message"}
	}
	return []int{op.call.Root}, []string{"the message has not come"}
}

// soFar says how far a lane has come where it waits; it is empty where nothing is counted.
func (f *frame) soFar(lane int, b *program.Instruction) string {
	if n := f.lanes[lane].moved; n > 0 && (b.Op == program.OpRecv || b.Op == program.OpSend) {
		return fmt.Sprintf("%d bytes so far", n)
	}
	return ""
}

// alike says of the ranks that an operation waits for what can be said although none is to blame.
func (c *Comm) alike(op *Op, waits []int) string {
	k := c.opts.Control
	if k == nil || !c.inquiry.over {
		return "; " + fault.Ranks(waits[:min(len(waits), mostEdges)]) + " may be late, or in another call"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, peer := range waits {
		if k.answers[peer].Op != op.describe() {
			return ""
		}
	}
	return "; all of them are in the same call"
}

// blame returns an error that names the ranks at the ends of the chains that op waits at, or else
// those that are in something else, and wait. It is nil if the inquiry has found neither.
func (c *Comm) blame(op *Op, waits []int, where []string) *fault.Error {
	k := c.opts.Control
	if k == nil || !c.inquiry.over {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	guilty := map[int]string{}
	accuse := func(peer int) {
		s, known := k.answers[peer]
		if !known && c.hasLeft(peer) { // and has told why
			return
		}
		if why := s.guilt(known, op); why != "" && slices.Contains(c.inquiry.asked, peer) {
			guilty[peer] = why
		}
	}
	var chains edges
	chains.add(c.rank, waits, where)
	for at := 0; at < len(waits); at++ { // it grows
		peer := waits[at]
		if peer == c.rank || slices.Contains(waits[:at], peer) {
			continue
		}
		accuse(peer)
		next := k.answers[peer].Waits
		chains.add(peer, next, nil)
		waits = append(waits, next...)
	}
	if op.call.Coll.Valid() { // a collective needs all ranks
		for _, peer := range c.inquiry.asked {
			accuse(peer)
		}
	}
	e := &fault.Error{Code: fault.Timeout, Ranks: slices.Sorted(maps.Keys(guilty))}
	for _, peer := range e.Ranks {
		e.Text += fmt.Sprintf("rank %d %s; ", peer, guilty[peer])
	}
	if len(guilty) == 0 {
		e.Ranks, e.Text = c.elsewhere(op, waits)
	}
	if len(e.Ranks) == 0 {
		return nil
	}
	e.Peer = e.Ranks[0]
	e.Text = strings.TrimSuffix(e.Text+chains.String(), "; ")
	return e
}

// elsewhere returns the ranks that wait in something that op cannot go on before, and those that
// they wait for: between them calls differ. Control.mu is held.
func (c *Comm) elsewhere(op *Op, waits []int) (ranks []int, text string) {
	k := c.opts.Control
	ordered := op.call.Coll.Valid() && op.keyed == nil
	who := waits
	if ordered {
		who = c.inquiry.asked
	}
	more := 0
	for _, peer := range slices.Compact(slices.Sorted(slices.Values(who))) {
		s := k.answers[peer]
		if peer == c.rank || s.Op == "" || ordered && s.Seq >= op.seq {
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
func (s *standing) guilt(answered bool, op *Op) string {
	switch {
	case !answered:
		return "does not answer; its process may be stopped, or its host cut off"
	case s.Busy || s.Op != "": // it is at work, or waits itself
		return ""
	case op.call.Coll.Valid() && op.keyed == nil && s.Seq >= op.seq: // it has done its part
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
