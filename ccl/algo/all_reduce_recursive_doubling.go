package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceRecursiveDoubling has each rank, in round k, swap its partial sum with the rank whose
// number differs in bit k, and add the two. The ranks that share all bits but the lowest k+1 then
// have the sum of their contributions. Ranks beyond a power of two are folded: with n = p + r and p
// = 2^⌊log₂ n⌋, each even rank among the first 2r ranks gives its contribution to the odd rank
// after it, and gets the result from that rank.
//
//	steps   ⌊log₂ n⌋, and 2 more where n is not a power of two
//	bytes   a rank sends m·⌊log₂ n⌋; of paired ranks, the first sends m, and the second m more than
//	        the others
//	time    log₂ n·(α + m·β + m·γ) for powers of two
//	wins    small blocks: fewest steps of all algorithms in which a rank exchanges messages with one
//	        other rank at a time
//	order   in rank order, bracketed by halves: (x₀+x₁) + (x₂+x₃). The lower rank's operand is the
//	        left one on both sides. The same for all elements and message sizes: level 3
//	memory  two blocks of Tmp, used in turn: a rank must not overwrite a block that it is still
//	        sending. One block for n < 5
//	source  Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
//	        MPICH" (2005)
//
// In place: only the last sum goes to Out. If it is the only sum, the rank receives the message in
// Tmp and adds it after In has been sent; otherwise both ranks would wait for each other.
func allReduceRecursiveDoubling(s plan.Spec) design {
	f := foldRanks(s.Ranks)
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		seat := f.seat(rank)
		if rank != f.odd(seat) {
			b := newLanes(2, 1)
			b.add(sending, send(in(0), rank+1))
			b.add(receiving, recv(out(0), rank+1))
			return b.program()
		}
		sums := f.log
		if f.paired(seat) {
			sums++
		}
		b := newLanes(2, 1, blocksOfTmp(max(sums-1, 1))...)
		have, sum := in(0), 0
		next := func() plan.Ref {
			if sum++; sum == sums {
				return out(0)
			}
			return tmp(sum % len(b.tmp))
		}
		if f.paired(seat) {
			to := next()
			b.add(receiving, msgReduce(to, have, rank-1))
			have = to
		}
		for bit := 1; bit < f.p; bit <<= 1 {
			peer := f.odd(seat ^ bit)
			b.add(sending, send(have, peer))
			to := next()
			var step plan.Step
			switch {
			case sums == 1 && peer > rank:
				b.add(receiving, recv(tmp(0), peer))
				step = reduce(to, have, tmp(0))
			case sums == 1:
				b.add(receiving, recv(tmp(0), peer))
				step = reduce(to, tmp(0), have)
			case peer > rank:
				step = recvReduce(to, have, peer)
			default:
				step = msgReduce(to, have, peer)
			}
			step.Final = sum == sums
			b.add(receiving, step)
			have = to
		}
		if f.paired(seat) {
			b.add(sending, send(have, rank-1))
		}
		return b.program()
	}}
}

// blocksOfTmp returns the wanted number of blocks of Tmp, but at most two, which are used in turn.
func blocksOfTmp(wanted int) []plan.Extent { return make([]plan.Extent, min(wanted, 2)) }
