package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterRing sends partial results around the ring. Block b starts at rank b+1, each rank adds its own
// contribution and passes it on, and it ends at rank b: in step k rank r sends block r-1-k to r+1 and receives block
// r-2-k from r-1. A block is passed on while it arrives.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), all of it to one neighbour
//	time    (n-1)·(α + m·β + m·γ)
//	wins    large blocks; every rank reduces at the same time, and only neighbours talk
//	order   along the ring from rank b+1 on, so it differs between blocks; the same bits in every run
//	memory  n-2 blocks of Tmp, one for each block passed on, since blocks may have different lengths
//	source  Patarasu, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009); NCCL ring
//
// In place: Out is the rank's own block of In, which is read and written last.
func reduceScatterRing(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		left, right := wrap(rank-1, n), wrap(rank+1, n)
		sends := []plan.Step{send(in(left), right)}
		var recvs []plan.Step
		var lengths []plan.Ref
		for k := range n - 1 {
			own := in(wrap(rank-2-k, n))
			if k == n-2 {
				last := passOn(rank, out(0), own, left)
				last.Final = true
				recvs = append(recvs, last)
				break
			}
			recvs = append(recvs, passOn(rank, tmp(k), own, left))
			lengths = append(lengths, own)
			sends = append(sends, send(tmp(k), right, afterRecv(k)))
		}
		return program(sends, recvs, lengths...)
	}}
}

// passOn adds a rank's own contribution to a partial result that comes around a ring. Rank 0 puts its own first, so that
// with two ranks the reduction is in rank order.
func passOn(rank int, dst, own plan.Ref, from int, after ...plan.Point) plan.Step {
	if rank == 0 {
		return recvReduce(dst, own, from, after...)
	}
	return msgReduce(dst, own, from, after...)
}
