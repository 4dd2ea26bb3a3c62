package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceWindow has every rank except the root copy its block into its window and signal the root.
// When all have done so, the root reduces the blocks of all windows at once, in rank order.
//
//	steps   1: all ranks signal the root, which waits for them and reduces n operands
//	bytes   every other rank copies m into its window, from where the root reads it: m·(n-1) in all
//	time    α + m·β + m·(n-1)·(β+γ)
//	wins    shared memory: one wait for any number of ranks, one pass over all operands; a rank
//	        other than the root waits for none
//	order   x₀ + x₁ + … from left to right, for every element: level 4
//	memory  one block of the window, none of the root's
//	source  "one-shot" of TensorRT-LLM's custom all-reduce, at the root only
//
// In place: only the root has an Out, which only its last step reads and writes.
func reduceWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: 1,
		program: func(rank int) plan.Program {
			if rank != s.Root {
				return offer(s, rank)
			}
			var steps []plan.Step
			for k := 1; k < n; k++ {
				steps = append(steps, wait(wrap(rank+k, n)))
			}
			return plan.Program{Lanes: [][]plan.Step{append(steps, windowReduce(out(0), win(0), in(0), n, rank))}}
		}}
}
