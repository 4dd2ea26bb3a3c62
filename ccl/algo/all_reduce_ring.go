package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceRing cuts the block into n chunks, reduces them around the ring (reduce-scatter) and
// sends the results around once more (all-gather). In step k of the first half, rank r sends chunk
// r-k to r+1, receives chunk r-1-k from r-1 and adds its own contribution; at the end it has the
// whole sum of chunk r+1. In step k of the second half it sends chunk r+1-k and receives chunk r-k.
// A rank passes a chunk on while the chunk still arrives.
//
//	steps   2(n-1)
//	bytes   a rank sends 2·m·(n-1)/n, the least possible, all of it to one neighbour
//	time    2(n-1)·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ
//	wins    large blocks on any path
//	order   chunk c along the ring from rank c on, so the order differs between chunks (in rank
//	        order with two ranks); all ranks get the same bits, in every run: level 2
//	source  Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
//	        (2009); NCCL ring
//
// A receive of the second half writes a chunk that this rank sent in the first half, so it comes
// after that send. In place this also holds for chunk r, which is sent directly from In.
func allReduceRing(s plan.Spec) design {
	return design{split: s.Ranks, alias: plan.InPlace, program: func(rank int) plan.Program {
		return program(circle{ranks: s.Ranks, way: 1, segments: 1}.steps(rank))
	}}
}
