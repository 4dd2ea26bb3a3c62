package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAllWindow has every rank copy its blocks for other ranks into its window and signal these
// ranks. A rank gets its block from each window once it has received the owner's signal.
//
//	steps   1: a rank signals all others; each block is one wait and one get
//	bytes   a rank copies m·(n-1) into its window and reads m·(n-1) out of others
//	time    α + 2·m·(n-1)·β
//	wins    shared memory, small blocks: one wait for any number of ranks
//	memory  n-1 blocks of the window
//	source  all-pairs of mscclpp; all-to-all of PyTorch's symmetric memory
//
// It does not run in place, like the other all_to_all algorithms.
func allToAllWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: n,
		program: func(rank int) plan.Program {
			steps := othersInto(n, rank)
			for k := 1; k < n; k++ {
				steps = append(steps, signal(wrap(rank+k, n)))
			}
			steps = append(steps, copyStep(out(rank), in(rank)))
			for k := 1; k < n; k++ {
				from := wrap(rank-k, n)
				steps = append(steps, wait(from), get(out(from), win(rank), from))
			}
			return plan.Program{Win: like(s, 1, rank, plan.Ref{Buf: plan.In, N: n}), Lanes: [][]plan.Step{steps}}
		}}
}
