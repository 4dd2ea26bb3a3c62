package algo

import "github.com/goccl/goccl/ccl/plan"

// ringSegments is the number of segments into which the segmented ring cuts a chunk. Four segments
// hide three quarters of the reductions. More segments would hide little more, and need
// proportionally more messages.
const ringSegments = 4

// allReduceSegmentedRing is allReduceRing with each chunk cut into S = 4 segments, each a message
// of its own: while a rank reduces one segment, the next is in flight. Above 32,768 ranks S is
// less, since a plan has at most 2¹⁷ chunks per block.
//
//	steps   2(n-1) of S messages
//	bytes   a rank sends 2·m·(n-1)/n, all of it to one neighbour
//	time    2(n-1)·S·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ/S, if γ ≤ β; the ring has S times less α and S
//	        times more γ
//	wins    large blocks where a reduction takes about as long as a message and the transport does
//	        not pass fragments on while they arrive; where it does, the ring is as fast
//	order   as in the ring, chunk c from rank c on: level 2
//	source  Open MPI coll/base allreduce_intra_ring_segmented; Pješivac-Grbović et al., "Performance
//	        analysis of MPI collective operations" (2007)
//
// In place for the reasons of allReduceRing.
func allReduceSegmentedRing(s plan.Spec) design {
	segments := min(ringSegments, plan.MaxSplit/s.Ranks)
	return design{split: s.Ranks * segments, alias: plan.InPlace, program: func(rank int) plan.Program {
		return program(circle{ranks: s.Ranks, way: 1, segments: segments}.steps(rank))
	}}
}
