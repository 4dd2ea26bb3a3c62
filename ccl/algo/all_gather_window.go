package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherWindow has every rank copy its block into its window and signal the other ranks. A rank
// gets each block from its owner's window once it has received the owner's signal.
//
//	steps   1: a rank signals all others; each block is one wait and one get
//	bytes   a rank copies m into its window and reads m·(n-1) out of others
//	time    α + m·β + m·(n-1)·β
//	wins    shared memory, where every pair of ranks has a path of its own: one wait for any number
//	        of ranks
//	memory  one block of the window
//	source  all-pairs of mscclpp; all-gather of PyTorch's symmetric memory
//
// In place: In is the rank's own block of Out, which no get writes.
func allGatherWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: 1,
		program: func(rank int) plan.Program {
			steps := []plan.Step{copyStep(win(0), in(0))}
			for k := 1; k < n; k++ {
				steps = append(steps, signal(wrap(rank+k, n)))
			}
			steps = append(steps, copyStep(out(rank), in(0)))
			for k := 1; k < n; k++ {
				from := wrap(rank-k, n)
				steps = append(steps, wait(from), get(out(from), win(0), from))
			}
			return plan.Program{Win: like(s, 1, rank, in(0)), Lanes: [][]plan.Step{steps}}
		}}
}
