package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceChain reduces along the chain of ranks 0, 1, …, n-1, with the block cut into S = 8
// segments. A rank adds its own contribution to the segment that it receives from the rank before,
// and passes the sum on while it receives the next segment. The last rank sends the result to the
// root, if the root is another rank.
//
//	steps   n-2+S where the root is rank n-1, else n-1+S; one with two ranks
//	bytes   a rank sends m; rank n-1 nothing where it is the root
//	time    (n-1+S)·(α + m/S·(β+γ)); for large blocks (1 + (n-1)/S)·m·(β+γ), and close to m·(β+γ)
//	        where the transport passes fragments on while they arrive; a root that is neither the
//	        first nor the last receives 2·m
//	wins    large blocks, few ranks, and wherever large blocks must be reduced in rank order
//	order   x₀ + x₁ + … from left to right, for every element and root
//	memory  a block of Tmp
//	source  Open MPI coll/base "pipeline"; Barnett, Littlefield, Payne, van de Geijn (1993)
//
// In place: the root's Out is its In, whose segments it has read or sent before it receives their
// results.
func reduceChain(s plan.Spec) design {
	if s.Ranks == 2 {
		return reduceFlat(s)
	}
	return design{split: segments, alias: plan.InPlace, program: func(rank int) plan.Program {
		last := s.Ranks - 1
		forward := plan.Stride{By: 1}
		var sends, adds, takes []plan.Step
		var lengths []plan.Extent
		if rank == 0 {
			step := send(in(0), 1)
			step.By = &plan.Advance{Src: []plan.Stride{forward}}
			sends = loop(segments, []plan.Step{step})
		} else {
			step := msgReduce(tmp(0), in(0), rank-1)
			step.Final = rank == last
			step.By = &plan.Advance{Dst: forward, Src: []plan.Stride{forward}}
			if rank == last && s.Root == last {
				step.Dst = out(0)
				return program(nil, loop(segments, []plan.Step{step}))
			}
			adds = loop(segments, []plan.Step{step})
			next := rank + 1
			if rank == last {
				next = s.Root
			}
			pass := send(tmp(0), next, afterRecv(0))
			pass.By = &plan.Advance{Src: []plan.Stride{forward}, After: []int{1}}
			sends = loop(segments, []plan.Step{pass})
			lengths = piece{0, segments}.lengths()
		}
		if rank == s.Root {
			// After the step that reads the same segment of In, which is in the lane just before
			// this one.
			step := recv(out(0), last, plan.Point{Lane: sending})
			if rank > 0 {
				step.After[0].Lane = receiving
			}
			step.By = &plan.Advance{Dst: forward, After: []int{1}}
			takes = loop(segments, []plan.Step{step})
		}
		p := program(sends, adds, lengths...)
		if takes != nil {
			p.Lanes = append(p.Lanes, takes)
		}
		return p
	}}
}
