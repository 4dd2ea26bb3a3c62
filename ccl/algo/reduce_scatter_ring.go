package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterRing sends partial results around the ring. Block b starts at rank b+1, each rank
// adds its own contribution and passes the block on, and it ends at rank b. In step k, rank r sends
// block r-1-k to r+1 and receives block r-2-k from r-1. A rank passes a block on while the block
// still arrives.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), all of it to one neighbour
//	time    (n-1)·(α + m·β + m·γ)
//	wins    large blocks; all ranks reduce at the same time, and only neighbours exchange messages
//	order   along the ring from rank b+1 on, so the order differs between blocks; the same bits in
//	        every run
//	memory  n-2 blocks of Tmp, one for each block passed on, since blocks may have different lengths
//	source  Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
//	        (2009); NCCL ring
//
// Programs are loops, of the same length for any number of ranks.
//
// In place: Out is the rank's own block of In, which is read and written last.
func reduceScatterRing(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		left, right := wrap(rank-1, n), wrap(rank+1, n)
		forward, down := plan.Stride{By: 1}, plan.Stride{By: -1, Mod: n}
		var lengths []plan.Extent
		for k := range n - 2 {
			lengths = append(lengths, like(s, 1, rank, in(wrap(rank-2-k, n)))...)
		}
		pass := send(tmp(0), right, afterRecv(0))
		pass.By = &plan.Advance{Src: []plan.Stride{forward}, After: []int{1}}
		sends := append([]plan.Step{send(in(left), right)}, loop(n-2, []plan.Step{pass})...)
		add := passOn(rank, tmp(0), in(wrap(rank-2, n)), left)
		add.By = &plan.Advance{Dst: forward, Src: []plan.Stride{down}}
		last := passOn(rank, out(0), in(rank), left)
		last.Final = true
		return program(sends, append(loop(n-2, []plan.Step{add}), last), lengths...)
	}}
}

// passOn returns the step that adds a rank's own contribution to a partial result that comes around
// a ring. Rank 0 puts its own first, so that with two ranks the reduction is in rank order.
func passOn(rank int, dst, own plan.Ref, from int, after ...plan.Point) plan.Step {
	if rank == 0 {
		return recvReduce(dst, own, from, after...)
	}
	return msgReduce(dst, own, from, after...)
}
