package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/plan"
)

// loan is a chunk of In or Out that a chunk of the window stands for.
type loan struct {
	ref   plan.Ref
	place int   // -1 for none
	wrote stamp // the last write to it before it was copied
}

// lend lets window chunks stand for the chunks that they are copies of.
func (m *memory) lend(lent []plan.Ref) {
	m.shareFrom(0)
	m.lent = make([]loan, len(lent))
	for i, r := range lent {
		m.lent[i] = loan{ref: r, place: -1}
	}
}

// lendChunk handles the step of l writing chunk i of its Dst, in a window whose chunks may be lent.
// Because of Lent, the write is either the one copy that makes the chunk lendable or a put of
// another rank.
func (x *execution) lendChunk(l *lane, m *memory, a *action, i int) *Counterexample {
	chunk := int(a.dst.at) + i
	loan := &m.lent[chunk]
	if loan.ref.N == 0 {
		return nil
	}
	if a.kind != plan.Copy {
		return x.counterexample(x.op(l), Overwritten, fmt.Sprintf("%s writes %v of rank %d, which stands for its %v",
			x.name(l), plan.Ref{Buf: plan.Win, At: chunk, N: 1}, a.dst.rank, loan.ref), x.here(l))
	}
	loan.place = m.place(ref{a.dst.rank, int32(loan.ref.At), 1, loan.ref.Buf}, 0)
	loan.wrote = m.wrote[loan.place]
	return nil
}

// borrow handles the step of l reading chunk i of r, in a window whose chunks may be lent.
func (x *execution) borrow(l *lane, m *memory, r ref, i int) *Counterexample {
	loan := &m.lent[int(r.at)+i]
	if loan.ref.N == 0 || loan.place < 0 {
		return nil
	}
	if x.credits != nil && x.ranks[r.rank].op > x.op(l) {
		return x.counterexample(x.op(l), Overwritten,
			fmt.Sprintf("%s reads %s, which stands for %v, after rank %d has ended, whose caller may write that",
				x.name(l), chunk(l.rank, r, i), loan.ref, r.rank), x.here(l))
	}
	lender := ref{r.rank, int32(loan.ref.At), 1, loan.ref.Buf}
	if other, ok := x.conflict(l, m, loan.place, false, false); ok {
		return x.race(l, lender, 0, other, "reads through the window", "writes")
	}
	if m.wrote[loan.place] != loan.wrote {
		return x.counterexample(x.op(l), Overwritten,
			fmt.Sprintf("%s reads %s, which stands for %v, after %s has written that",
				x.name(l), chunk(l.rank, r, i), loan.ref, x.nameOf(m.wrote[loan.place])),
			x.here(l), x.whereOf(m.wrote[loan.place]))
	}
	m.noteRead(l, loan.place)
	return nil
}
