package algo

import "github.com/goccl/goccl/ccl/plan"

// gatherWindow has every rank except the root copy its block into its window and signal the root,
// which gets each block once it has received its owner's signal.
//
//	steps   1: all ranks signal the root; each block is one wait and one get
//	bytes   every other rank copies m into its window, from where the root reads it: m·(n-1) in all
//	time    α + m·β + m·(n-1)·β, and an exchange of lengths before
//	wins    shared memory, long blocks: no fragments, and only the root waits for others
//	memory  one block of the window, none of the root's
//	source  the counterpart of broadcast's window
//
// Only the root knows how long all blocks are, and all ranks must cut them into the same pieces; so
// the executor has the ranks exchange the lengths first, for which short blocks are too short.
//
// In place: the root's In is its own block of Out, which no get writes.
func gatherWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: 1,
		program: func(rank int) plan.Program {
			if rank != s.Root {
				return offer(s, rank)
			}
			steps := []plan.Step{copyStep(out(rank), in(0))}
			for k := 1; k < n; k++ {
				from := wrap(rank+k, n)
				steps = append(steps, wait(from), get(out(from), win(0), from))
			}
			return plan.Program{Lanes: [][]plan.Step{steps}}
		}}
}
