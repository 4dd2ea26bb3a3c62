package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceBidirectionalRing runs two rings at once: the first half of the block goes around as in
// allReduceRing, the second half in the opposite direction. Each half is cut into n chunks. With
// two ranks, where both neighbours of a rank are the same rank, each ring has its own channel.
//
//	steps   2(n-1) in each ring
//	bytes   a rank sends 2·m·(n-1)/n, half of it to each neighbour
//	time    2(n-1)·α + m·(n-1)/n·(β + γ/2) where a rank can send and receive in both directions at
//	        once; the time of the ring where it cannot
//	wins    large blocks where each neighbour has a link of its own (a torus, NVLink bridges, PCIe
//	        switches in a row): it uses both links
//	order   chunk c of the first half from rank c upwards, of the second half from rank c downwards
//	        (in rank order with two ranks); all ranks get the same bits, in every run: level 2
//	source  Jain, Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus
//	        interconnects" (2010), for one dimension
//
// In place for the reasons of allReduceRing.
func allReduceBidirectionalRing(s plan.Spec) design {
	channels := 1
	if s.Ranks == 2 {
		channels = 2
	}
	return design{split: 2 * s.Ranks, chans: channels, alias: plan.InPlace, program: func(rank int) plan.Program {
		up := circle{ranks: s.Ranks, way: 1, segments: 1}
		down := circle{ranks: s.Ranks, way: -1, segments: 1, first: s.Ranks, lane: 2, channel: channels - 1}
		upSends, upRecvs := up.steps(rank)
		downSends, downRecvs := down.steps(rank)
		return plan.Program{Lanes: [][]plan.Step{upSends, upRecvs, downSends, downRecvs}}
	}}
}
