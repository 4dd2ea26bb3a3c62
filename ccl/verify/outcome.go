package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// outcome checks the guarantees of the collectives, once all lanes have ended.
func (x *execution) outcome() *Counterexample {
	defer func() { x.out = 0 }()
	for op, p := range x.plans {
		if p.Spec.Coll == dtype.Barrier {
			if bad := x.barrier(op); bad != nil {
				return bad
			}
			continue
		}
		for r := range x.ranks {
			for i := range p.OutChunks(r) {
				x.out = i
				if bad := x.outChunk(op, r, i); bad != nil {
					return bad
				}
			}
		}
	}
	return nil
}

// outChunk checks a chunk of a rank's Out.
func (x *execution) outChunk(op, r, i int) *Counterexample {
	at, v, end := plan.Ref{Buf: plan.Out, At: i, N: 1}, x.result(op, r, i), Where{Rank: r, Lane: -1, Step: -1, Op: op}
	if v == nothing || x.inPlace && x.untouched(op, r, i) {
		return x.counterexample(op, Unwritten, fmt.Sprintf("rank %d ends without having written %v", r, at), end)
	}
	from, chunk := x.wanted(op, r, i)
	if x.plans[op].Spec.Coll.Reduces() {
		return x.sum(op, r, at, v, chunk)
	}
	if vs := x.values[op]; v != vs.raw(from, chunk) {
		n := vs.node(v)
		return x.counterexample(op, WrongValue,
			fmt.Sprintf("rank %d ends with in[%d] of rank %d in %v, which should have in[%d] of rank %d",
				r, n.chunk, n.rank, at, chunk, from), end)
	}
	return nil
}

// result returns the value of chunk i of a rank's Out.
func (x *execution) result(op, r, i int) value {
	m := x.ranks[r].mem[op]
	return m.vals[m.place(ref{rank: int32(r), at: int32(i), n: 1, buf: plan.Out}, 0)]
}

// untouched reports whether a chunk of Out that is also a chunk of In, in a reducing collective, is
// still as the caller left it. Moving collectives may leave a chunk untouched if its content is
// right.
func (x *execution) untouched(op, r, i int) bool {
	return x.plans[op].Spec.Coll.Reduces() && x.values[op].node(x.result(op, r, i)).kind == raw
}

// wanted returns the content of chunk i of rank r's Out: a chunk of In, of rank from or summed over
// all ranks.
func (x *execution) wanted(op, r, i int) (from, chunk int) {
	p := x.plans[op]
	split := p.Split
	block, part := i/split, i%split
	switch p.Spec.Coll {
	case dtype.Scatter:
		return p.Spec.Root, r*split + part
	case dtype.Gather, dtype.AllGather:
		return block, part
	case dtype.AllToAll:
		return block, r*split + part
	case dtype.ReduceScatter:
		return 0, r*split + part
	}
	return p.Spec.Root, i // broadcast, reduce, all_reduce
}

// sum checks a chunk that should be the sum over all ranks of one chunk of In, divided once.
func (x *execution) sum(op, r int, at plan.Ref, v value, chunk int) *Counterexample {
	vs := x.values[op]
	n := vs.node(v)
	end, made := Where{Rank: r, Lane: -1, Step: -1, Op: op}, x.made(n.at)
	if n.flaw != nil {
		return x.counterexample(op, n.flaw.reason,
			fmt.Sprintf("rank %d ends with a wrong result in %v: at %s %s", r, at,
				x.nameSpot(n.flaw.at), n.flaw.text), x.made(n.flaw.at), end)
	}
	if int(n.chunk) != chunk {
		return x.counterexample(op, WrongValue,
			fmt.Sprintf("rank %d ends with the sum of all in[%d] in %v, which should have that of in[%d]",
				r, n.chunk, at, chunk), made, end)
	}
	if rank := vs.absent(v); rank >= 0 {
		return x.counterexample(op, Missing, fmt.Sprintf("rank %d ends with a sum in %v that lacks in[%d] of rank %d",
			r, at, chunk, rank), made, end)
	}
	if n.kind != final {
		return x.counterexample(op, PostScale,
			fmt.Sprintf("rank %d ends with a result in %v that no step has marked Final", r, at), made, end)
	}
	return nil
}

// made returns the step that a tree names.
func (x *execution) made(s spot) Where {
	if s.lane < 0 {
		return Where{Rank: int(s.rank), Lane: -1, Step: -1}
	}
	return x.codes[s.rank].where(int(s.rank), int(s.lane), int(s.step))
}

func (x *execution) nameSpot(s spot) string {
	if s.lane < 0 {
		return x.made(s).String()
	}
	return x.nameAt(&x.ranks[s.rank].lanes[s.lane], int(s.step))
}

// known returns the combined knowledge of all lanes of a rank.
func (x *execution) known(rk *rank) clock {
	known := make(clock, x.clocks.size)
	for i := range rk.lanes {
		known.join(rk.lanes[i].clock)
	}
	return known
}

// barrier checks that the end of every rank comes after the start of every other.
func (x *execution) barrier(op int) *Counterexample {
	for r := range x.ranks {
		var known clock
		if rk := &x.ranks[r]; rk.knew != nil {
			known = rk.knew[op]
		} else {
			known = x.known(rk)
		}
		for other := range x.ranks {
			came := other == r
			for i := range x.ranks[other].lanes {
				l := &x.ranks[other].lanes[i]
				came = came || known[l.id-l.offset] >= started(int(x.ranks[other].code.begins[i][op]))
			}
			if came {
				continue
			}
			x.out = other
			if bad := x.counterexample(op, NotABarrier,
				fmt.Sprintf("rank %d may leave before rank %d has come", r, other),
				Where{Rank: r, Lane: -1, Step: -1, Op: op}); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// determinism derives the level of a plan from the trees of its results.
func (x *execution) determinism() Level {
	if !x.plans[0].Spec.Coll.Reduces() {
		return RankOrder
	}
	v := x.values[0]
	want := v.rankOrder()
	same, level := map[int32]value{}, RankOrder // the result of each chunk of In
	shape := int32(-1)
	for r := range x.ranks {
		for i := range x.plans[0].OutChunks(r) {
			result := x.result(0, r, i)
			n := v.node(result)
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
