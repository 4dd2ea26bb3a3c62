package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceTwoShotWindow cuts the block into n slices. Every rank copies its block, except its own
// slice, into its window. When all have done so, rank r reduces slice r from all windows at once,
// in rank order, and copies the sum into its own window, from where the others get it.
//
//	steps   2, in each of which a rank signals all others and waits for them
//	bytes   a rank copies m into its window, reads m·(n-1)/n to reduce and m·(n-1)/n of results
//	time    2·α + m·β + m·(n-1)/n·(2β+γ): the copies into the rank's own window, the reads to
//	        reduce, the reads of results
//	wins    medium and large blocks in shared memory: two waits for any number of ranks, the fewest
//	        bytes, one pass over all operands
//	order   x₀ + x₁ + … from left to right, for every element: level 4
//	memory  one block of the window
//	source  "two-shot" of TensorRT-LLM's custom all-reduce and of PyTorch's symmetric memory
//
// The sum goes to Out first, then to the window: a copy takes over cache lines that other ranks
// have read last, but a reduction would have to read them. In place: a rank writes Out when its own
// slice is reduced, and does not read In any more.
func allReduceTwoShotWindow(s plan.Spec) design {
	n := s.Ranks
	return design{split: n, alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: n,
		program: func(rank int) plan.Program {
			steps := append(othersInto(n, rank), meet(n, rank)...)
			steps = append(steps, windowReduce(out(rank), win(rank), in(rank), n, rank), copyStep(win(rank), out(rank)))
			steps = append(steps, meet(n, rank)...)
			for k := 1; k < n; k++ {
				from := wrap(rank+k, n)
				steps = append(steps, get(out(from), win(from), from))
			}
			return plan.Program{Win: like(s, n, rank, plan.Ref{Buf: plan.In, N: n}), Lanes: [][]plan.Step{steps}}
		}}
}
