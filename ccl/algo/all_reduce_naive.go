package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceNaive reduces to rank 0 up a binomial tree, as reduceBinomial does, and then broadcasts
// the result down the same tree, as broadcastBinomial does.
//
//	steps   2⌈log₂ n⌉
//	bytes   rank 0 sends m·⌈log₂ n⌉, another rank m to its parent and m to each child; 2·m·(n-1) in
//	        all
//	time    2⌈log₂ n⌉·(α + m·β) + ⌈log₂ n⌉·m·γ
//	wins    nowhere; it is the baseline of the others
//	order   each partial result is over consecutive ranks, in order, but bracketed by the tree:
//	        (x₀+x₁) + (x₂+x₃). The same for all elements and message sizes: level 3
//	source  MPICH before 2005; Thakur, Rabenseifner, Gropp, "Optimization of Collective
//	        Communication Operations in MPICH" (2005)
//
// In place: all partial results are in Out; the result arrives after the partial result has been
// sent.
func allReduceNaive(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		b := newLanes(2, 1)
		children := binomialChildren(rank, s.Ranks)
		have := in(0)
		for _, child := range children {
			b.add(receiving, recvReduce(out(0), have, child))
			have = out(0)
		}
		if rank > 0 {
			b.add(sending, send(have, binomialParent(rank)))
			b.add(receiving, recv(out(0), binomialParent(rank)))
		} else {
			b.steps[receiving][len(children)-1].Final = true
		}
		for i := len(children) - 1; i >= 0; i-- {
			b.add(sending, send(out(0), children[i]))
		}
		return b.program()
	}}
}
