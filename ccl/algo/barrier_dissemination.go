package algo

import "github.com/goccl/goccl/ccl/plan"

// barrierDissemination has rank r send an empty message to r+2^k and receive one from r-2^k in
// round k, which begins when round k-1 is over. After round k a rank knows that the 2^(k+1)-1 ranks
// before it have entered the barrier.
//
//	steps   ⌈log₂ n⌉
//	bytes   none; a rank sends ⌈log₂ n⌉ empty messages
//	time    ⌈log₂ n⌉·α
//	wins    always: no rank count has fewer rounds
//	source  Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization" (1988)
func barrierDissemination(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		var sends, recvs []plan.Step
		for k := range ceilLog2(s.Ranks) {
			step := send(plan.Ref{}, wrap(rank+1<<k, s.Ranks))
			if k > 0 {
				step.After = []plan.Point{afterRecv(k - 1)}
			}
			sends = append(sends, step)
			recvs = append(recvs, recv(plan.Ref{Buf: plan.Out}, wrap(rank-1<<k, s.Ranks)))
		}
		return program(sends, recvs)
	}}
}
