package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherDoubling is recursive doubling. In each step a rank exchanges all the blocks it has with one at twice the distance
// of the step before (1, 2, 4, …). What it has are neighbouring blocks, so each step is one message, straight from and
// into Out. Where n is no power of two, the first ranks form pairs: the even rank gives its block to the odd one, which acts
// for both and at the end gives it everything.
//
//	steps   log₂ n; ⌊log₂ n⌋ + 2 where n is no power of two
//	bytes   a rank sends m·(n-1); where n is no power of two, m at even ranks of pairs and up to 7/3·m·n at odd ones
//	time    log₂ n·α + (n-1)·m·β; else (⌊log₂ n⌋+2)·α + up to 7/3·n·m·β
//	wins    small and medium blocks where n is a power of two; it needs no Tmp and copies nothing but the own block
//	source  Thakur, Rabenseifner, Gropp (2005)
//
// In place: In is the rank's own block of Out. An even rank of a pair receives it back, after it has sent it.
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
