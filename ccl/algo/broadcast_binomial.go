package algo

import "github.com/goccl/goccl/ccl/plan"

// broadcastBinomial sends the root's block down a binomial tree. Ranks are numbered by their
// distance from the root; a rank that has the block sends it to its children, the child with the
// largest subtree first.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m to each child: m·⌈log₂ n⌉ at the root, nothing at the leaves; m·(n-1) in
//	        all
//	time    ⌈log₂ n⌉·(α + m·β); less where a rank passes on fragments before it has the whole block
//	wins    small and medium blocks, any rank count; nothing has fewer steps
//	source  Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
//	        MPICH" (2005)
//
// In place: the root's copy does nothing, and no other rank has an In.
func broadcastBinomial(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		v := wrap(rank-s.Root, n)
		children := binomialChildren(v, n)
		var sends, recvs []plan.Step
		block := in(0)
		if v > 0 {
			block = out(0)
			recvs = append(recvs, recv(out(0), wrap(binomialParent(v)+s.Root, n)))
		}
		for i := len(children) - 1; i >= 0; i-- {
			step := send(block, wrap(children[i]+s.Root, n))
			if len(sends) == 0 && v > 0 {
				step.After = []plan.Point{afterRecv(0)} // the other sends follow in this lane
			}
			sends = append(sends, step)
		}
		if v == 0 {
			sends = append(sends, copyStep(out(0), in(0)))
		}
		return program(sends, recvs)
	}}
}
