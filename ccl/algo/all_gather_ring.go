package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherRing sends the blocks around the ring: in step k rank r sends block r-k to r+1 and
// receives block r-1-k from r-1. A rank passes a block on while the block still arrives.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), all of it to one neighbour
//	time    (n-1)·(α + m·β)
//	wins    large blocks where paths between neighbours are the best ones or are shared by others
//	        (TCP, NUMA)
//	source  Thakur, Rabenseifner, Gropp (2005); NCCL ring
//
// Programs are loops, of the same length for any number of ranks.
//
// In place: In is the rank's own block of Out, which no receive writes.
func allGatherRing(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		left, right := wrap(rank-1, n), wrap(rank+1, n)
		down := plan.Stride{By: -1, Mod: n}
		pass := send(out(left), right, afterRecv(0))
		pass.By = &plan.Advance{Src: []plan.Stride{down}, After: []int{1}}
		take := recv(out(left), left)
		take.By = &plan.Advance{Dst: down}
		sends := append([]plan.Step{send(in(0), right), copyStep(out(rank), in(0))}, loop(n-2, []plan.Step{pass})...)
		return program(sends, loop(n-1, []plan.Step{take}))
	}}
}
