package algo

import "github.com/goccl/goccl/ccl/plan"

// barrierTree gathers empty messages up a binomial tree to rank 0, which then knows that all ranks
// have entered the barrier, and broadcasts an empty message down the same tree.
//
//	steps   2·⌈log₂ n⌉
//	bytes   none; 2(n-1) empty messages in all, while barrierDissemination has n·⌈log₂ n⌉
//	time    2·⌈log₂ n⌉·α
//	wins    where messages in flight at the same time cost more than the second way through the tree
//	source  Mellor-Crummey, Scott, "Algorithms for scalable synchronization on shared-memory
//	        multiprocessors" (1991), §3.5
func barrierTree(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		children := binomialChildren(rank, s.Ranks)
		var sends, recvs []plan.Step
		for _, child := range children {
			recvs = append(recvs, recv(plan.Ref{Buf: plan.Out}, child))
		}
		if rank > 0 {
			up := send(plan.Ref{}, binomialParent(rank))
			if len(recvs) > 0 {
				up.After = []plan.Point{afterRecv(len(recvs) - 1)}
			}
			sends = append(sends, up)
			recvs = append(recvs, recv(plan.Ref{Buf: plan.Out}, binomialParent(rank)))
		}
		for i := len(children) - 1; i >= 0; i-- {
			down := send(plan.Ref{}, children[i])
			if i == len(children)-1 {
				down.After = []plan.Point{afterRecv(len(recvs) - 1)}
			}
			sends = append(sends, down)
		}
		return program(sends, recvs)
	}}
}
