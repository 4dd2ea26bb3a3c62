package algo

import "github.com/goccl/goccl/ccl/plan"

// broadcastFlat has the root send its block to every other rank, the next higher rank first.
//
//	steps   n-1
//	bytes   the root sends m·(n-1), the others nothing
//	time    (n-1)·(α + m·β), all of it at the root
//	wins    two or three ranks, and small blocks where the root can have many messages in flight
//	source  MPI folklore; Open MPI coll/base "linear"
//
// In place: the root's copy does nothing, and no other rank has an In.
func broadcastFlat(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		if rank != s.Root {
			return program(nil, []plan.Step{recv(out(0), s.Root)})
		}
		next := send(in(0), wrap(rank+1, s.Ranks))
		next.By = &plan.Advance{Peer: plan.Stride{By: 1, Mod: s.Ranks}}
		return program(append(loop(s.Ranks-1, []plan.Step{next}), copyStep(out(0), in(0))), nil)
	}}
}
