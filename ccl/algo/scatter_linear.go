package algo

import "github.com/goccl/goccl/ccl/plan"

// scatterLinear has the root send each rank its block, beginning with the next higher rank.
//
//	steps   n-1
//	bytes   the root sends m·(n-1), the others nothing
//	time    (n-1)·(α + m·β)
//	wins    wherever the root's link is the limit, which it is even for small blocks; a rank needs
//	        to know only its own length
//	source  MPI folklore; Open MPI coll/base "linear"
//
// In place: the root's Out is its own block of In, and its copy does nothing.
func scatterLinear(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		if rank != s.Root {
			return program(nil, []plan.Step{recv(out(0), s.Root)})
		}
		var sends []plan.Step
		for k := 1; k < s.Ranks; k++ {
			to := wrap(rank+k, s.Ranks)
			sends = append(sends, send(in(to), to))
		}
		return program(append(sends, copyStep(out(0), in(rank))), nil)
	}}
}
