package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherBruck doubles the number of blocks that a rank has in every step, for any number of
// ranks. After step k rank r has the blocks of ranks r to r+2^(k+1)-1. In step k it sends its first
// 2^k blocks to r-2^k, or fewer if that rank lacks fewer, and receives as many from r+2^k. A rank
// collects the blocks in Tmp, its own block first, and copies them to their places at the end.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m·(n-1)
//	time    ⌈log₂ n⌉·α + (n-1)·m·β, and a copy of everything
//	wins    small blocks, any rank count; nothing has fewer steps
//	memory  n blocks of Tmp
//	source  Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
//	        communications in multiport message-passing systems" (1997); Thakur, Rabenseifner, Gropp
//	        (2005)
//
// In place: In is the rank's own block of Out. It is read first, and Out is written last.
func allGatherBruck(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		recvs := []plan.Step{copyStep(tmp(0), in(0))}
		var sends []plan.Step
		for d := 1; d < n; d *= 2 {
			blocks := min(d, n-d)
			sends = append(sends, send(piece{0, blocks}.of(plan.Tmp), wrap(rank-d, n), afterRecv(len(recvs)-1)))
			recvs = append(recvs, recv(piece{d, blocks}.of(plan.Tmp), wrap(rank+d, n)))
		}
		for _, part := range rotated(rank, n) {
			recvs = append(recvs, copyStep(part.ordered.of(plan.Out), part.rotated.of(plan.Tmp)))
		}
		return program(sends, recvs, like(s, 1, rank, rotatedRefs(rank, n, plan.Out)...)...)
	}}
}
