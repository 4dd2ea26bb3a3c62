package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceBinomial reduces up a binomial tree. Ranks are numbered by their distance from the root; a
// rank adds the sums of its children, the child with the smallest subtree first, and sends the
// result to its parent. An inner rank keeps its partial result in Tmp, since it has no Out and must
// not change its In.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m, the root nothing
//	time    ⌈log₂ n⌉·(α + m·β + m·γ)
//	wins    small and medium blocks, any rank count
//	order   each partial result is over consecutive ranks, in order of their distance from the root,
//	        but bracketed by the tree: x₀+x₁ + (x₂+x₃). The same for all elements and message sizes.
//	        In rank order with two ranks
//	memory  one block of Tmp at ranks that are neither the root nor leaves
//	source  Thakur, Rabenseifner, Gropp (2005)
//
// In place: only the root has an Out, and it sends nothing.
func reduceBinomial(s plan.Spec) design {
	if s.Ranks == 2 {
		return reduceFlat(s) // in rank order, whichever rank is the root
	}
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		v := wrap(rank-s.Root, n)
		children := binomialChildren(v, n)
		sum := tmp(0)
		if v == 0 {
			sum = out(0)
		}
		var recvs []plan.Step
		have := in(0)
		for _, child := range children {
			recvs = append(recvs, recvReduce(sum, have, wrap(child+s.Root, n)))
			have = sum
		}
		if v == 0 {
			recvs[len(recvs)-1].Final = true
			return program(nil, recvs)
		}
		up := send(have, wrap(binomialParent(v)+s.Root, n))
		if len(recvs) == 0 {
			return program([]plan.Step{up}, nil)
		}
		up.After = []plan.Point{afterRecv(len(recvs) - 1)}
		return program([]plan.Step{up}, recvs, plan.Extent{})
	}}
}
