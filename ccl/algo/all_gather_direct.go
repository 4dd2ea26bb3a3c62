package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherDirect has every rank send its block to every other rank. Rank r sends to r+1, r+2, …
// and receives from r-1, r-2, …, so that in every step each rank receives from one other rank.
//
//	steps   n-1, which do not depend on each other
//	bytes   a rank sends m·(n-1)
//	time    (n-1)·(α + m·β); close to α + (n-1)·m·β where messages overlap
//	wins    small blocks, and all blocks where every pair of ranks has a path of its own (shared
//	        memory)
//	source  Open MPI coll/base all_gather "linear"; all-pairs of mscclpp
//
// In place: In is the rank's own block of Out, which no receive writes.
func allGatherDirect(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		up, down := plan.Stride{By: 1, Mod: n}, plan.Stride{By: -1, Mod: n}
		give := send(in(0), wrap(rank+1, n))
		give.By = &plan.Advance{Peer: up}
		take := recv(out(wrap(rank-1, n)), wrap(rank-1, n))
		take.By = &plan.Advance{Dst: down, Peer: down}
		return program(append(loop(n-1, []plan.Step{give}), copyStep(out(rank), in(0))), loop(n-1, []plan.Step{take}))
	}}
}
