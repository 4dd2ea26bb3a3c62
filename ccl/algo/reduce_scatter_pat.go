package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterPAT is allGatherPAT run backwards: every block is reduced up a binomial tree of its
// own, all trees run at the same time, and a rank sends all its sums for the same peer in one
// message. The large messages, which come first, go to neighbours; the last messages, of one block,
// go far.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m·(n-1)
//	time    ⌈log₂ n⌉·α + (n-1)·m·(β+γ), and a copy of everything
//	wins    small blocks in large groups whose far ranks share narrow links
//	order   by a tree that begins at the rank of the block, so the order differs between blocks; the
//	        same bits in every run
//	memory  n blocks of Tmp; see allGatherPAT
//	source  Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
//	        (2025); NCCL 2.23
//
// In place: Out is the rank's own block of In, which is read first and written last.
func reduceScatterPAT(s plan.Spec) design {
	t := newPAT(s.Ranks)
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		var sends, recvs []plan.Step
		var lengths []plan.Extent
		for i, place := range t.order {
			block := wrap(rank-place, n)
			recvs = append(recvs, copyStep(tmp(i), in(block)))
			lengths = append(lengths, s.Extent(1, rank, plan.In, block))
		}
		for i := len(t.hops) - 1; i >= 0; i-- {
			hop := t.hops[i]
			sends = append(sends, send(hop.to.of(plan.Tmp), wrap(rank-hop.dist, n), afterRecv(len(recvs)-1)))
			sum := hop.from.of(plan.Tmp)
			recvs = append(recvs, merge(rank, sum, sum, wrap(rank+hop.dist, n)))
		}
		last := &recvs[len(recvs)-1] // one block, the rank's own
		last.Dst, last.Final = out(0), true
		return program(sends, recvs, lengths...)
	}}
}
