package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterGather is the reduce of Rabenseifner, the counterpart of broadcastScatterAllGather:
// a reduce-scatter by recursive halving, then a binomial gather of the results to the root. The
// block is cut into p chunks, where p is the largest power of two up to n. If n is not a power of
// two, the first ranks form pairs, and one rank of each pair gives its block to the other (to the
// root, if it is in the pair).
//
//	steps   2·log₂ n; 2·⌊log₂ n⌋ + 1 where n is not a power of two
//	bytes   a rank sends m·(p-1)/p to reduce and at most m/2 to gather; m where it gives its block
//	        away
//	time    2·log₂ n·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ; where n is not a power of two another α +
//	        m·(β+γ)
//	wins    large blocks, where all ranks share the work of reducing
//	order   (x₀+x₄)+(x₂+x₆) + …: far ranks first, in rank order where two operands are added; pairs
//	        are added before. The same for all elements, sizes and roots
//	memory  half a block of Tmp; a whole one at ranks that act for two; none at the root
//	source  Thakur, Rabenseifner, Gropp (2005); Rabenseifner, "Optimization of collective reduction
//	        operations" (2004)
//
// In place: the root collects in Out. It has sent chunks of In before it receives results in their
// place.
func reduceScatterGather(s plan.Spec) design {
	f := foldRanks(s.Ranks)
	active := func(seat int) int {
		if f.paired(seat) && s.Root != f.odd(seat) {
			return f.start(seat)
		}
		return f.odd(seat)
	}
	return design{split: f.p, alias: plan.InPlace, program: func(rank int) plan.Program {
		seat := f.seat(rank)
		block := piece{0, f.p}
		if partner := active(seat); rank != partner {
			return program([]plan.Step{send(block.of(plan.In), partner)}, nil)
		}
		var sends, recvs []plan.Step
		afterLast := func(step plan.Step) plan.Step { // send what the last receive completed
			if len(recvs) > 0 {
				step.After = []plan.Point{afterRecv(len(recvs) - 1)}
			}
			return step
		}
		inIn := true // nothing is reduced so far: the data is in In
		kept := piece{}
		have := func(chunks piece) plan.Ref {
			switch {
			case inIn:
				return chunks.of(plan.In)
			case rank == s.Root:
				return chunks.of(plan.Out)
			}
			return piece{chunks.at - kept.at, chunks.n}.of(plan.Tmp)
		}
		into := func(chunks piece, from int) { // add the sums that come from another rank
			own := have(chunks)
			if inIn {
				inIn, kept = false, chunks
			}
			recvs = append(recvs, merge(rank, have(chunks), own, from))
		}
		if f.paired(seat) {
			partner := f.start(seat) + f.odd(seat) - rank
			into(block, partner)
		}
		sent := map[int]int{} // the step that sent, by distance
		for d := f.p / 2; d > 0; d /= 2 {
			keep, give := halves(seat, d)
			peer := active(seat ^ d)
			sent[d] = len(sends)
			sends = append(sends, afterLast(send(have(give), peer)))
			into(keep, peer)
		}
		recvs[len(recvs)-1].Final = true
		root := f.seat(s.Root)
		for d := 1; d < f.p; d *= 2 {
			keep, give := halves(seat&^(d-1), d) // the chunks that this rank has by now, and their sibling
			if (seat^root)&d != 0 {
				sends = append(sends, afterLast(send(have(keep), active(seat^d))))
				break
			}
			recvs = append(recvs, recv(have(give), active(seat^d), afterSend(sent[d])))
		}
		lengths := kept.lengths()
		if rank == s.Root {
			lengths = nil
		}
		return program(sends, recvs, lengths...)
	}}
}

// halves returns the chunks that a seat keeps and gives away when it halves 2·d chunks. d is a
// power of two.
func halves(seat, d int) (keep, give piece) {
	at := seat &^ (d - 1)
	return piece{at, d}, piece{at ^ d, d}
}
