package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterWindow has every rank copy its blocks for other ranks into its window. When all have
// done so, each rank reduces its own block from all windows at once, in rank order.
//
//	steps   1: a rank signals all others, waits for them, and reduces n operands
//	bytes   a rank copies m·(n-1) into its window and reads m·(n-1) out of others
//	time    α + m·(n-1)·(2β+γ)
//	wins    shared memory: one wait for any number of ranks, one pass over all operands
//	order   x₀ + x₁ + … from left to right, for every element: level 4
//	memory  n blocks of the window
//	source  first half of "two-shot" in TensorRT-LLM's custom all-reduce
//
// In place: Out is the rank's own block of In, which only the last step reads.
func reduceScatterWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: n,
		program: func(rank int) plan.Program {
			steps := append(othersInto(n, rank), meet(n, rank)...)
			steps = append(steps, windowReduce(out(0), win(rank), in(rank), n, rank))
			return plan.Program{Win: like(s, 1, rank, plan.Ref{Buf: plan.In, N: n}), Lanes: [][]plan.Step{steps}}
		}}
}
