package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherRing sends the blocks around the ring: in step k rank r sends block r-k to r+1 and receives block r-1-k from
// r-1. A block that arrives is passed on while it arrives.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), all of it to one neighbour
//	time    (n-1)·(α + m·β)
//	wins    large blocks where paths between neighbours are the best ones or are shared by others (TCP, NUMA)
//	source  Thakur, Rabenseifner, Gropp (2005), §4.1; NCCL ring
//
// In place: In is the rank's own block of Out, which nobody else writes.
func allGatherRing(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		left, right := wrap(rank-1, n), wrap(rank+1, n)
		sends := []plan.Step{send(in(0), right), copyStep(out(rank), in(0))}
		var recvs []plan.Step
		for k := range n - 1 {
			if k > 0 {
				sends = append(sends, send(out(wrap(rank-k, n)), right, afterRecv(k-1)))
			}
			recvs = append(recvs, recv(out(wrap(rank-1-k, n)), left))
		}
		return program(sends, recvs)
	}}
}
