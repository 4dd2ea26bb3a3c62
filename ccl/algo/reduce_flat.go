package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceFlat has every rank send its block to the root, which reduces in rank order.
//
//	steps   n-1
//	bytes   a rank sends m, the root nothing
//	time    α + (n-1)·m·β + m·γ where messages are in flight at the same time and are reduced as
//	        they arrive, (n-1)·(α + m·β + m·γ) where the root receives them one by one
//	wins    where the result must not depend on the root or on the shape of a tree; two ranks
//	order   x₀ + x₁ + … from left to right
//	source  MPI folklore; Open MPI coll/base "linear"
//
// In place: only the root has an Out, and it sends nothing. Its sum is in Tmp until its own
// contribution is added.
func reduceFlat(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		if rank != s.Root {
			return program([]plan.Step{send(in(0), s.Root)}, nil)
		}
		return program(nil, inRankOrder(s.Ranks, rank, in(0)), tmpInRankOrder(s, rank, in(0))...)
	}}
}
