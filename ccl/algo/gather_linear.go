package algo

import "github.com/goccl/goccl/ccl/plan"

// gatherLinear has every rank send its block to the root, which receives the blocks in rank order,
// from the next higher rank on.
//
//	steps   n-1
//	bytes   the root sends nothing, the others m
//	time    α + (n-1)·m·β where messages are in flight at the same time, (n-1)·(α + m·β) where the
//	        root receives them one by one
//	wins    wherever the root's link is the limit, which it is even for small blocks; a rank needs
//	        to know only its own length
//	source  MPI folklore; Open MPI coll/base "linear"
//
// In place: the root's In is its own block of Out, and its copy does nothing.
func gatherLinear(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		if rank != s.Root {
			return program([]plan.Step{send(in(0), s.Root)}, nil)
		}
		recvs := []plan.Step{copyStep(out(rank), in(0))}
		for k := 1; k < s.Ranks; k++ {
			from := wrap(rank+k, s.Ranks)
			recvs = append(recvs, recv(out(from), from))
		}
		return program(nil, recvs)
	}}
}
