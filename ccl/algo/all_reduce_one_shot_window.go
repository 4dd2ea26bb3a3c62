package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceOneShotWindow has every rank copy its block into its window and, when all have done so,
// reduce the blocks of all windows at once, in rank order. All ranks do the same arithmetic and get
// the same bits.
//
//	steps   1: a rank signals all others, waits for them, and reduces n operands
//	bytes   a rank copies m into its window and reads m·(n-1) out of others
//	time    α + m·β + m·(n-1)·(β+γ)
//	wins    small blocks in shared memory: no rank waits twice
//	order   x₀ + x₁ + … from left to right, for every element: level 4
//	memory  one block of the window
//	source  "one-shot" of TensorRT-LLM's custom all-reduce and of PyTorch's symmetric memory
//
// In place: Out is written last, and the other ranks read the window, not In.
func allReduceOneShotWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace, needs: plan.Puts | plan.Gets, flags: 1, win: 1,
		program: func(rank int) plan.Program {
			steps := append([]plan.Step{copyStep(win(0), in(0))}, meet(n, rank)...)
			steps = append(steps, windowReduce(out(0), win(0), in(0), n, rank))
			return plan.Program{Win: like(s, 1, rank, in(0)), Lanes: [][]plan.Step{steps}}
		}}
}
