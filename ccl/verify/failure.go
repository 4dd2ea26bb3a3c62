package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/plan"
)

// counterexample creates a counterexample, or returns nil if x.seek rejects it.
func (x *execution) counterexample(op int, reason Reason, text string, at ...Where) *Counterexample {
	p := x.plans[op]
	c := &Counterexample{Plan: p.Name, Spec: p.Spec, InPlace: x.inPlace, Lent: x.lend, Reason: reason, At: at,
		Text: text, out: x.out}
	if x.seek != nil && !x.seek(c) {
		return nil
	}
	return c
}

func (x *execution) op(l *lane) int { return int(l.code[l.pc].op) }

// here returns the step of l.
func (x *execution) here(l *lane) Where { return x.codes[l.rank].where(l.rank, l.lane, l.pc) }

// whereOf returns the step of a stamp.
func (x *execution) whereOf(s stamp) Where {
	l := x.byID[s.lane]
	return x.codes[l.rank].where(l.rank, l.lane, stepOf(s.end))
}

// nameOf describes the step of a stamp.
func (x *execution) nameOf(s stamp) string {
	l := x.byID[s.lane]
	return x.nameAt(l, stepOf(s.end))
}

// name describes the step of l.
func (x *execution) name(l *lane) string { return x.nameAt(l, l.pc) }

func (x *execution) nameAt(l *lane, i int) string {
	c := &x.codes[l.rank]
	s := c.step(l.lane, i)
	w := c.where(l.rank, l.lane, i)
	if len(x.plans) > 1 {
		return fmt.Sprintf("plan %d, %v (%v)", w.Op, w, &s)
	}
	return fmt.Sprintf("%v (%v)", w, &s)
}

// chunk names chunk i of r, as seen by a step of the given rank.
func chunk(rank int, r ref, i int) string {
	name := plan.Ref{Buf: r.buf, At: int(r.at) + i, N: 1}.String()
	if int(r.rank) != rank {
		return fmt.Sprintf("%s of rank %d", name, r.rank)
	}
	return name
}

// length describes the length that an extent stands for.
func length(e plan.Extent) string {
	if e.From == e.To {
		return fmt.Sprintf("part %d of block %d", e.Part, e.From)
	}
	return fmt.Sprintf("part %d of the block from %d to %d", e.Part, e.From, e.To)
}

func (x *execution) race(l *lane, r ref, i int, other stamp, verb, otherVerb string) *Counterexample {
	m := x.ranks[r.rank].mem[x.op(l)]
	why, edges := "nothing orders the two", x.edges(l, other)
	if place := m.place(r, i); m.window(place) >= 0 && m.arrivals[m.window(place)].put && m.wrote[place] == other {
		why, edges = fmt.Sprintf("what is put is there only after a wait of rank %d for a later signal", r.rank), nil
		for _, s := range m.arrivals[m.window(place)].seen {
			edges = append(edges, x.edges(l, s)...)
		}
	}
	return x.disorder(l, other, edges, Race,
		fmt.Sprintf("%s %s %s, which %s %s, and %s",
			x.name(l), verb, chunk(l.rank, r, i), x.nameOf(other), otherVerb, why))
}

// disorder returns a counterexample for the step of l and another step that nothing orders. One of
// the edges may order them.
func (x *execution) disorder(l *lane, other stamp, edges []edge, reason Reason, text string) *Counterexample {
	bad := x.counterexample(x.op(l), reason, text, x.here(l), x.whereOf(other))
	if bad != nil {
		bad.edges = edges
	}
	return bad
}

func (x *execution) unordered(l *lane, before stamp, what string) *Counterexample {
	return x.disorder(l, before, x.edges(l, before), Unordered, fmt.Sprintf(
		"nothing orders the %s by %s and %s, which use the same peer and channel", what, x.nameOf(before), x.name(l)))
}

func (x *execution) undefined(l *lane, r ref, i int) *Counterexample {
	return x.counterexample(x.op(l), Undefined, fmt.Sprintf("%s reads %s before anything was written there",
		x.name(l), chunk(l.rank, r, i)), x.here(l))
}

func (x *execution) overwritten(l *lane, r ref, i int, by stamp) *Counterexample {
	return x.counterexample(x.op(l), Overwritten,
		fmt.Sprintf("%s reads %s after %s has written out, which is the same memory",
			x.name(l), chunk(l.rank, r, i), x.nameOf(by)), x.here(l), x.whereOf(by))
}

// mismatch returns a counterexample for a message with a different number of chunks, or from a
// different plan of a sequence, than its recv.
func (x *execution) mismatch(from, to *lane, crossed bool) *Counterexample {
	if crossed {
		return x.crossed(from, from.pc, to)
	}
	sent, wanted := x.ranks[from.rank].code.refs[from.code[from.pc].src].n, to.code[to.pc].dst.n
	return x.counterexample(x.op(to), Length,
		fmt.Sprintf("%s sends %d chunks, %s receives %d", x.name(from), sent, x.name(to), wanted),
		x.here(from), x.here(to))
}

func (x *execution) crossed(from *lane, step int, to *lane) *Counterexample {
	return x.counterexample(x.op(to), Crossed, fmt.Sprintf("%s takes what %s gives", x.name(to), x.nameAt(from, step)),
		x.here(to), x.codes[from.rank].where(from.rank, from.lane, step))
}

func (x *execution) badLength(from, to *lane, i int, sent, wanted plan.Extent) *Counterexample {
	return x.counterexample(x.op(to), Length,
		fmt.Sprintf("chunk %d of the message from %s to %s: its length is that of %s, wanted is that of %s",
			i, x.name(from), x.name(to), length(sent), length(wanted)), x.here(from), x.here(to))
}

func (x *execution) badReach(l *lane, remote ref, i int, here, there plan.Extent) *Counterexample {
	return x.counterexample(x.op(l), Length, fmt.Sprintf("%s: %s has the length of %s, on this side it is that of %s",
		x.name(l), chunk(l.rank, remote, i), length(there), length(here)), x.here(l))
}

func (x *execution) outside(l *lane, remote ref, has int) *Counterexample {
	return x.counterexample(x.op(l), OutOfBounds, fmt.Sprintf("%s accesses %v of rank %d, whose window has %d chunks",
		x.name(l), remote.plan(), remote.rank, has), x.here(l))
}

func (x *execution) unwaited(s *signal) *Counterexample {
	a := &s.lane.code[s.step]
	return x.counterexample(int(a.op), Unwaited,
		fmt.Sprintf("rank %d does not wait for the signal of %s", a.peer, x.nameAt(s.lane, s.step)),
		x.codes[s.lane.rank].where(s.lane.rank, s.lane.lane, s.step))
}

func (x *execution) late(p *put) *Counterexample {
	return x.counterexample(int(p.op), Late,
		fmt.Sprintf("rank %d may end, and a later operation use its window, before what %s puts has arrived: "+
			"rank %d waits for no signal that rank %d gives after it",
			p.mem.rank, x.nameOf(p.by), p.mem.rank, x.byID[p.by.lane].rank),
		x.whereOf(p.by))
}
