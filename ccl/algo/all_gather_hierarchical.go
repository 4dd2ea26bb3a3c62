package algo

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// allGatherHierarchical is reduceScatterHierarchical run backwards. First the ranks with the same
// place on each of the b hosts gather their blocks (rails), then the a ranks of each host gather
// the blocks of their rails. Any all-gather can run in each of two or three levels.
//
//	steps   G(b) + G(a)·b, where each block is a message of its own, since the blocks of a rail are
//	        not contiguous in Out
//	bytes   a rank sends m·(b-1) across and m·b·(a-1) within its host, where a flat ring has m·(n-1)
//	        on every link
//	time    G(b)·α₁ + b·G(a)·α₀ + m·(b-1)·β₁ + m·b·(a-1)·β₀
//	wins    where paths within a host are faster than paths across hosts: the slower paths carry 1/a
//	        of the bytes
//	memory  none where the parts can run in place; else the blocks that a level gathers
//	source  Cho et al., "BlueConnect" (2019); Träff, "Efficient allgather for regular SMP-clusters"
//	        (2006)
//
// In place: the rank's own block of Out is only written by a copy onto itself, or from Tmp after In
// has been read.
func allGatherHierarchical(s plan.Spec, p parts, sizes []int) (design, error) {
	subs, err := levelPlans(dtype.AllGather, p, sizes)
	if err != nil {
		return design{}, err
	}
	split := commonSplit(subs)
	return composed(split, subs, func(rank int) plan.Program {
		return allGatherLevels(s, split, rank, digits(rank, sizes), subs)
	}), nil
}

// allGatherLevels returns the program of a rank that belongs to one group in each level.
func allGatherLevels(s plan.Spec, split, rank int, groups []group, subs []*plan.Plan) plan.Program {
	c := &composer{spec: s, split: split, rank: rank, home: plan.Out}
	src := region{buf: plan.In, unit: split, low: rank, stride: 1}
	for l := len(groups) - 1; l >= 0; l-- {
		g, first := groups[l], rank%groups[l].stride
		st := blocksStage(subs[l], g, first, s.Ranks, split)
		st.src, st.dst = src, whole(plan.Out)
		// In may be the rank's own block of Out, and the result belongs in Out. A stage that cannot
		// run in place needs Tmp on one side.
		if src.buf != plan.Tmp && !inPlace(subs[l]) || l > 0 && !inPlace(subs[l-1]) {
			st.dst = c.temporary(region{unit: split, low: first, stride: g.stride}, s.Ranks/g.stride)
		}
		c.add(st)
		src = st.dst
	}
	return c.prog
}
