package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterDirect has every rank send block p to rank p; each rank reduces the blocks that it
// receives in rank order.
//
//	steps   n-1 sends and n-1 receives; 2n-3 in the longest chain, as all ranks wait for rank 0
//	        first, then for rank 1, …
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·(β+γ)) while messages fit into the transport's buffers, up to (2n-3)·(α +
//	        m·(β+γ)) when they do not
//	wins    small blocks, and wherever blocks must be reduced in rank order
//	order   x₀ + x₁ + … from left to right, for every block
//	memory  one block of Tmp; none with two ranks
//	source  all-pairs of mscclpp; Open MPI coll/base "linear"
//
// A rank sends to the next higher rank first, so that not all ranks begin with rank 0. Receivers
// take the messages in rank order. No order of sends can deadlock with that, since every rank takes
// the message of rank 0 first, then the message of rank 1, and so on.
//
// In place: Out is the rank's own block of In, which it does not send.
func reduceScatterDirect(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		var sends []plan.Step
		for k := 1; k < s.Ranks; k++ {
			to := wrap(rank+k, s.Ranks)
			sends = append(sends, send(in(to), to))
		}
		return program(sends, inRankOrder(s.Ranks, rank, in(rank)), tmpInRankOrder(s, rank, in(rank))...)
	}}
}
