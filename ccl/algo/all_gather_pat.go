package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherPAT is parallel aggregated trees: every block goes down a binomial tree of its own, all
// trees run at the same time, and a rank passes on all blocks for the same peer in one message. It
// has the steps and bytes of allGatherBruck, but in reverse: small messages go far, and large
// messages go to neighbours.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m·(n-1)
//	time    ⌈log₂ n⌉·α + (n-1)·m·β, and a copy of everything
//	wins    small blocks in large groups whose far ranks share narrow links: each block crosses them
//	        only once
//	memory  n blocks of Tmp. (NCCL limits this memory by sending large blocks in pieces, one after
//	        the other, through the same buffer; here blocks may have different lengths)
//	source  Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
//	        (2025); NCCL 2.23
//
// In place: In is the rank's own block of Out. It is read first, and Out is written last.
func allGatherPAT(s plan.Spec) design {
	t := newPAT(s.Ranks)
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		recvs := []plan.Step{copyStep(tmp(t.root), in(0))}
		var sends []plan.Step
		for _, hop := range t.hops {
			sends = append(sends, send(hop.from.of(plan.Tmp), wrap(rank+hop.dist, n), afterRecv(len(recvs)-1)))
			recvs = append(recvs, recv(hop.to.of(plan.Tmp), wrap(rank-hop.dist, n)))
		}
		var lengths []plan.Extent
		for i, place := range t.order {
			block := wrap(rank-place, n)
			recvs = append(recvs, copyStep(out(block), tmp(i)))
			lengths = append(lengths, s.Extent(1, rank, plan.Out, block))
		}
		return program(sends, recvs, lengths...)
	}}
}
