package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterBruck is the all-gather of Bruck run backwards, for any number of ranks. Tmp has the
// rank's contributions, first to its own block, then to the blocks of the next ranks. In a step
// with distance d, from the largest power of two below n down to 1, rank r sends its sums of blocks
// r+d to r+2d-1 to r+d, and adds the sums from r-d to its first blocks.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m·(n-1)
//	time    ⌈log₂ n⌉·α + (n-1)·m·(β+γ), and a copy of everything
//	wins    small blocks where n is not a power of two; nothing has fewer steps
//	order   by a tree that begins at the rank of the block, so the order differs between blocks; the
//	        same bits in every run
//	memory  n blocks of Tmp
//	source  Bruck, Ho, Kipnis, Upfal, Weathersby (1997), reversed; Träff, "Optimal, non-pipelined
//	        reduce-scatter and allreduce algorithms" (2024)
//
// In place: Out is the rank's own block of In, which is read first and written last.
func reduceScatterBruck(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		var sends, recvs []plan.Step
		for _, part := range rotated(rank, n) {
			recvs = append(recvs, copyStep(part.rotated.of(plan.Tmp), part.ordered.of(plan.In)))
		}
		for d := 1 << (ceilLog2(n) - 1); d > 0; d /= 2 {
			blocks := min(d, n-d)
			sends = append(sends, send(piece{d, blocks}.of(plan.Tmp), wrap(rank+d, n), afterRecv(len(recvs)-1)))
			sum := piece{0, blocks}.of(plan.Tmp)
			recvs = append(recvs, merge(rank, sum, sum, wrap(rank-d, n)))
		}
		last := &recvs[len(recvs)-1] // one block, the rank's own
		last.Dst, last.Final = out(0), true
		return program(sends, recvs, like(s, 1, rank, rotatedRefs(rank, n, plan.In)...)...)
	}}
}
