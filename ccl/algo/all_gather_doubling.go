package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherDoubling is recursive doubling. In each step a rank swaps all the blocks it has with a
// rank at twice the distance of the step before (1, 2, 4, …). These blocks are contiguous, so each
// step is one message, directly from and into Out. If n is not a power of two, the first ranks form
// pairs: the even rank sends its block to the odd rank, which acts for both and at the end sends
// back all blocks.
//
//	steps   log₂ n; ⌊log₂ n⌋ + 2 where n is not a power of two
//	bytes   a rank sends m·(n-1); where n is not a power of two, m at even ranks of pairs and up to
//	        7/3·m·n at odd ranks
//	time    log₂ n·α + (n-1)·m·β; else (⌊log₂ n⌋+2)·α + up to 7/3·n·m·β
//	wins    small and medium blocks where n is a power of two; it needs no Tmp and copies only the
//	        rank's own block
//	source  Thakur, Rabenseifner, Gropp (2005)
//
// In place: In is the rank's own block of Out. An even rank of a pair receives this block back
// after it has sent it.
func allGatherDoubling(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		f := foldRanks(s.Ranks)
		seat := f.seat(rank)
		all := piece{0, s.Ranks}
		if f.paired(seat) && rank != f.odd(seat) {
			return program([]plan.Step{send(in(0), rank+1)}, []plan.Step{recv(all.of(plan.Out), rank+1, afterSend(0))})
		}
		var sends, recvs []plan.Step
		if f.paired(seat) {
			recvs = append(recvs, recv(out(rank-1), rank-1))
			sends = append(sends, copyStep(out(rank), in(0)))
		}
		for d := 1; d < f.p; d *= 2 {
			first := seat &^ (d - 1) // seats [first, first+d) have the same blocks
			peer := f.odd(seat ^ d)
			step := send(f.ranks(first, first+d).of(plan.Out), peer)
			if len(recvs) > 0 {
				step.After = []plan.Point{afterRecv(len(recvs) - 1)}
			}
			if len(sends) == 0 {
				step.Src[0] = in(0)
				sends = append(sends, step, copyStep(out(rank), in(0)))
			} else {
				sends = append(sends, step)
			}
			recvs = append(recvs, recv(f.ranks(first^d, first^d+d).of(plan.Out), peer))
		}
		if f.paired(seat) {
			sends = append(sends, send(all.of(plan.Out), rank-1, afterRecv(len(recvs)-1)))
		}
		return program(sends, recvs)
	}}
}
