package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherDirect has every rank send its block to every other. Rank r sends to r+1, r+2, … and receives from r-1, r-2, …,
// so that in every step each rank is sent to by one other.
//
//	steps   n-1, which do not depend on each other
//	bytes   a rank sends m·(n-1)
//	time    (n-1)·(α + m·β); close to α + (n-1)·m·β where messages overlap
//	wins    small blocks, and all blocks where every pair of ranks has a path of its own (shared memory)
//	source  Open MPI coll/base all_gather "linear"; all-pairs of mscclpp
//
// In place: In is the rank's own block of Out, which nobody else writes.
func allGatherDirect(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		var sends, recvs []plan.Step
		for k := 1; k < s.Ranks; k++ {
			sends = append(sends, send(in(0), wrap(rank+k, s.Ranks)))
			from := wrap(rank-k, s.Ranks)
			recvs = append(recvs, recv(out(from), from))
		}
		return program(append(sends, copyStep(out(rank), in(0))), recvs)
	}}
}
