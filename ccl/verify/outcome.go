package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// outcome checks what the collective promises, once all lanes have ended.
func (x *execution) outcome() *Counterexample {
	if x.plan.Spec.Coll == dtype.Barrier {
		return x.barrier()
	}
	for r := range x.ranks {
		for i := range x.plan.OutChunks(r) {
			if bad := x.outChunk(r, i); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// outChunk checks a chunk of a rank's Out.
func (x *execution) outChunk(r, i int) *Counterexample {
	at, v := plan.Ref{Buf: plan.Out, At: i, N: 1}, x.out(r, i)
	if v == nothing || x.inPlace && x.untouched(r, i) {
		return x.counterexample(Unwritten, fmt.Sprintf("rank %d ends without having written %v", r, at), Where{r, -1, -1})
	}
	from, chunk := x.wanted(r, i)
	if x.reduces {
		return x.sum(r, at, v, chunk)
	}
	if v != x.values.raw(from, chunk) {
		n := x.values.nodes[v]
		return x.counterexample(WrongValue, fmt.Sprintf("rank %d ends with in[%d] of rank %d in %v, which should have in[%d] of rank %d",
			r, n.chunk, n.rank, at, chunk, from), Where{r, -1, -1})
	}
	return nil
}

// out is what chunk i of a rank's Out holds.
func (x *execution) out(r, i int) value {
	m := x.ranks[r].mem
	return m.vals[m.place(plan.Ref{Buf: plan.Out, At: i, N: 1}, 0)]
}

// untouched reports whether a chunk of Out that is also a chunk of In, in a reducing collective, is as the caller left it.
// Moving collectives may leave it so, where it is right.
func (x *execution) untouched(r, i int) bool {
	return x.reduces && x.values.nodes[x.out(r, i)].kind == raw
}

// wanted is what chunk i of rank r's Out consists of: chunk of In, of rank from or of all ranks.
func (x *execution) wanted(r, i int) (from, chunk int) {
	split := x.plan.Split
	block, part := i/split, i%split
	switch x.plan.Spec.Coll {
	case dtype.Scatter:
		return x.plan.Spec.Root, r*split + part
	case dtype.Gather, dtype.AllGather:
		return block, part
	case dtype.AllToAll:
		return block, r*split + part
	case dtype.ReduceScatter:
		return 0, r*split + part
	}
	return x.plan.Spec.Root, i // broadcast, reduce, all_reduce
}

// sum checks a chunk that should be the sum over all ranks of one chunk of In, divided once.
func (x *execution) sum(r int, at plan.Ref, v value, chunk int) *Counterexample {
	n := x.values.nodes[v]
	end := Where{r, -1, -1}
	if n.flaw != nil {
		return x.counterexample(n.flaw.reason, fmt.Sprintf("rank %d ends with a wrong result in %v: at %s %s", r, at,
			x.name(n.flaw.at), n.flaw.text), n.flaw.at, end)
	}
	if int(n.chunk) != chunk {
		return x.counterexample(WrongValue, fmt.Sprintf("rank %d ends with the sum of all in[%d] in %v, which should have that of in[%d]",
			r, n.chunk, at, chunk), n.at, end)
	}
	if rank := x.values.absent(v); rank >= 0 {
		return x.counterexample(Missing, fmt.Sprintf("rank %d ends with a sum in %v that lacks in[%d] of rank %d",
			r, at, chunk, rank), n.at, end)
	}
	if n.kind != final {
		return x.counterexample(PostScale, fmt.Sprintf("rank %d ends with a result in %v that no step has marked Final", r, at), n.at, end)
	}
	return nil
}

// barrier checks that the end of every rank comes after the start of every other.
func (x *execution) barrier() *Counterexample {
	for r := range x.ranks {
		known := make(clock, x.clocks.size)
		for i := range x.ranks[r].lanes {
			known.join(x.ranks[r].lanes[i].clock)
		}
		for other := range x.ranks {
			came := other == r
			for i := range x.ranks[other].lanes {
				came = came || known[x.base[other]+i] > 0
			}
			if !came {
				return x.counterexample(NotABarrier, fmt.Sprintf("rank %d may leave before rank %d has come", r, other), Where{r, -1, -1})
			}
		}
	}
	return nil
}

// determinism derives the level of a plan from the trees of its results.
func (x *execution) determinism() Level {
	if !x.reduces {
		return RankOrder
	}
	v := x.values
	want := v.rankOrder()
	same, level := map[int32]value{}, RankOrder // the result of each chunk of In
	shape := int32(-1)
	for r := range x.ranks {
		for i := range x.plan.OutChunks(r) {
			result := x.out(r, i)
			n := v.nodes[result]
			if other, ok := same[n.chunk]; ok && other != result {
				return PerRank
			}
			same[n.chunk] = result
			if n.shape != want {
				level = min(level, AnySize)
			}
			if shape >= 0 && n.shape != shape {
				level = min(level, EveryRun)
			}
			shape = n.shape
		}
	}
	return level
}
