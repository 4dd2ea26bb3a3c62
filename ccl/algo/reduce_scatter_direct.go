package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterDirect has every rank send block p to rank p; each rank reduces what it gets in rank order.
//
//	steps   n-1 sends and n-1 receives; 2n-3 in the longest chain, as all ranks wait for rank 0 first, then for rank 1, …
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·(β+γ)) while messages fit into the transport's buffers, up to (2n-3)·(α + m·(β+γ)) when they do not
//	wins    small blocks, and wherever the order of reduction must be that of the ranks
//	order   x₀ + x₁ + … from left to right, for every block
//	memory  one block of Tmp; none with two ranks
//	source  all-pairs of mscclpp; Open MPI coll/base "linear"
//
// Sends begin with the next higher rank, so that not all ranks begin with rank 0. Receivers take the messages in rank
// order; no order of sends can deadlock with that, since what rank 0 sends is wanted first everywhere, then what rank 1
// sends, and so on.
//
// In place: Out is the rank's own block of In, which it sends to nobody.
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
