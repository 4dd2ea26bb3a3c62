package algo

import "github.com/goccl/goccl/ccl/plan"

// broadcastWindow has the root copy its block into its window and signal the other ranks, which all
// get it from there.
//
//	steps   1: n-1 signals, then the others read at the same time
//	bytes   the root copies m into its window, every other rank reads m out of it
//	time    (n-1)·α for the signals, m·β for the copy, m·β for the gets, which share the root's
//	        memory
//	wins    shared memory: no rank passes the block on
//	memory  one block of the root's window
//	source  MPI folklore; shared-memory broadcast of Graham, Shipman (2008)
//
// In place: the root's copy does nothing, and no other rank has an In.
func broadcastWindow(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace | plan.Lend, needs: plan.Puts | plan.Gets, flags: 1, win: 1,
		program: func(rank int) plan.Program {
			if rank != s.Root {
				return plan.Program{Lanes: [][]plan.Step{{wait(s.Root), get(out(0), win(0), s.Root)}}}
			}
			steps := []plan.Step{copyStep(win(0), in(0))}
			for k := 1; k < n; k++ {
				steps = append(steps, signal(wrap(rank+k, n)))
			}
			return plan.Program{Win: []plan.Extent{{}}, Lanes: [][]plan.Step{append(steps, copyStep(out(0), in(0)))}}
		}}
}
