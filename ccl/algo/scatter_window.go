package algo

import "github.com/goccl/goccl/ccl/plan"

// scatterWindow has the root copy each other rank's block into its window and signal that rank,
// which gets it from there. The root begins with the next higher rank.
//
//	steps   1: n-1 signals, each behind a copy; every other rank does one get
//	bytes   the root copies m·(n-1) into its window, every other rank reads m out of it
//	time    (n-1)·(α + m·β) for the root, m·β for the last get, and an exchange of lengths before
//	wins    shared memory, long blocks: no fragments, and the root waits for no other rank
//	memory  n-1 blocks of the root's window
//	source  the counterpart of gather's window
//
// Only the root knows how long all blocks are, and all ranks must cut them into the same pieces; so
// the executor has the ranks exchange the lengths first, for which short blocks are too short.
//
// In place: the root's Out is its own block of In, and its copy does nothing.
func scatterWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: n - 1,
		program: func(rank int) plan.Program {
			if rank != s.Root {
				mine := win(wrap(rank-s.Root, n) - 1)
				return plan.Program{Lanes: [][]plan.Step{{wait(s.Root), get(out(0), mine, s.Root)}}}
			}
			var steps []plan.Step
			var lengths []plan.Extent
			for k := 1; k < n; k++ {
				to := wrap(rank+k, n)
				steps = append(steps, copyStep(win(k-1), in(to)), signal(to))
				lengths = append(lengths, like(s, 1, rank, in(to))...)
			}
			return plan.Program{Win: lengths, Lanes: [][]plan.Step{append(steps, copyStep(out(0), in(rank)))}}
		}}
}
