package algo

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// reduceScatterHierarchical reduces within the innermost level (a host of a ranks) first: rank i of
// each host gets the host's sums of the blocks for the ranks i of all hosts. Then the ranks i, one
// on each of the b hosts, reduce-scatter these sums (rails). Any reduce-scatter can run in each of
// two or three levels.
//
//	steps   R(a)·b + R(b): within the host the b blocks of a part are messages of their own, since
//	        they are not contiguous in In
//	bytes   a rank sends m·b·(a-1) within its host and m·(b-1) across, where a flat ring has m·(n-1)
//	        on every link
//	time    b·R(a)·α₀ + R(b)·α₁ + m·b·(a-1)·(β₀+γ) + m·(b-1)·(β₁+γ)
//	wins    where paths within a host are faster than paths across hosts: the slower paths carry 1/a
//	        of the bytes
//	order   within hosts first, in the order of the inner algorithm, then across: level 2, or 3
//	        where all parts have 3
//	memory  b blocks of Tmp, and the Tmp of the parts
//	source  Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
//	        network hierarchy" (2019)
//
// In place: In is read by the first stage only, and Out is written by the last.
func reduceScatterHierarchical(s plan.Spec, p parts, sizes []int) (design, error) {
	subs, err := levelPlans(dtype.ReduceScatter, p, sizes)
	if err != nil {
		return design{}, err
	}
	split := commonSplit(subs)
	return composed(split, subs, func(rank int) plan.Program {
		c := &composer{spec: s, split: split, rank: rank, home: plan.In}
		groups := digits(rank, sizes)
		src := region{buf: plan.In, unit: split, stride: 1}
		first := 0 // this rank has the blocks first, first+stride of the group, …
		for l, g := range groups {
			st := blocksStage(subs[l], g, first, s.Ranks, split)
			st.src, st.final, st.merge = src, l == len(groups)-1, l == len(groups)-1
			first += g.pos * g.stride
			if st.final {
				st.dst = region{buf: plan.Out, unit: split, low: rank, stride: 1}
			} else {
				st.dst = c.temporary(region{unit: split, low: first, stride: g.stride * g.size}, st.runs)
			}
			c.add(st)
			src = st.dst
		}
		return c.prog
	}), nil
}

// levelPlans makes a plan of one collective for each level.
func levelPlans(coll dtype.Collective, p parts, sizes []int) ([]*plan.Plan, error) {
	var subs []*plan.Plan
	for l, size := range sizes {
		sub, err := subPlan(coll, p.level(l, len(sizes)), size, l)
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// blocksStage returns a stage in one level of a collective with a block for each of n ranks: block
// j of the sub-plan is the blocks first + stride·(j + size·i) of the plan, for all i.
func blocksStage(sub *plan.Plan, g group, first, n, split int) stage {
	return stage{sub: sub, ranks: ranksOf(g), self: g.pos, runs: n / (g.stride * g.size), length: split,
		start: func(block, run int) int { return (first + g.stride*(block+g.size*run)) * split }}
}
