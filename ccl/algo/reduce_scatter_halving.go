package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterHalving is recursive halving. In each step a rank exchanges messages with a rank at
// half the distance of the step before (n/2, n/4, …, 1): it sends the half of its blocks that the
// other rank keeps, and reduces the half that it keeps itself. The blocks of a half are contiguous,
// so each step is one message, even if their lengths differ. If n is not a power of two, the first
// ranks form pairs: the even rank gives all its blocks to the odd rank, which acts for both.
//
//	steps   log₂ n; ⌊log₂ n⌋ + 2 where n is not a power of two
//	bytes   a rank sends m·(n-1); where n is not a power of two, m·n at even ranks of pairs and at
//	        most m·n at odd ranks
//	time    log₂ n·α + (n-1)·m·(β+γ); else (⌊log₂ n⌋+2)·α + about 2·n·m·β + 2·n·m·γ
//	wins    small and medium blocks where n is a power of two
//	order   (x₀+x₄)+(x₂+x₆) + …: far ranks first, in rank order where two operands are added; pairs
//	        are added before. The same for all blocks and sizes
//	memory  the n/2 blocks kept in the first step (none with two ranks); n blocks at the odd ranks
//	        of pairs
//	source  Thakur, Rabenseifner, Gropp (2005); Rabenseifner (2004) for other rank counts
//
// In place: Out is the rank's own block of In, which only the rank itself reads, or which an even
// rank of a pair has sent before.
func reduceScatterHalving(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		f := foldRanks(s.Ranks)
		seat := f.seat(rank)
		if f.paired(seat) && rank != f.odd(seat) {
			return program([]plan.Step{send(piece{0, s.Ranks}.of(plan.In), rank+1)},
				[]plan.Step{recv(out(0), rank+1, afterSend(0))})
		}
		var sends, recvs []plan.Step
		var lengths []plan.Extent
		have := func(blocks piece) plan.Ref { return blocks.of(plan.In) } // where a range of blocks is
		base := 0                                                         // the block in tmp[0]
		inTmp := func(blocks piece) plan.Ref { return piece{blocks.at - base, blocks.n}.of(plan.Tmp) }
		if f.paired(seat) {
			all := piece{0, s.Ranks}
			recvs = append(recvs, merge(rank, all.of(plan.Tmp), all.of(plan.In), rank-1))
			lengths = like(s, 1, rank, all.of(plan.In))
			have = inTmp
		}
		for d := f.p / 2; d > 0; d /= 2 {
			first := seat &^ (2*d - 1) // seats [first, first+2d) have the same blocks
			keep, give := f.ranks(first, first+d), f.ranks(first+d, first+2*d)
			if seat&d != 0 {
				keep, give = give, keep
			}
			peer := f.odd(seat ^ d)
			step := send(have(give), peer)
			if len(recvs) > 0 {
				step.After = []plan.Point{afterRecv(len(recvs) - 1)}
			}
			sends = append(sends, step)
			own := have(keep)
			if lengths == nil && keep.n > 1 {
				base, lengths = keep.at, like(s, 1, rank, own)
			}
			have = inTmp
			dst := out(0)
			if keep.n > 1 {
				dst = inTmp(keep)
			}
			recvs = append(recvs, merge(rank, dst, own, peer))
		}
		recvs[len(recvs)-1].Final = true
		if f.paired(seat) {
			sends = append(sends, send(tmp(rank-1-base), rank-1, afterRecv(len(recvs)-1)))
			recvs = append(recvs, copyStep(out(0), tmp(rank-base)))
		}
		return program(sends, recvs, lengths...)
	}}
}
