package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceRabenseifner halves and doubles: in round k of the first half a rank gives one half of what it has to the rank
// whose number differs in bit k, and adds the other half that it gets; then each rank has the sum of 1/p of the block. The
// second half goes back: in each round two ranks swap what they have. Ranks beyond a power of two are folded as in
// recursive doubling: n = p + r, p = 2^⌊log₂ n⌋.
//
//	steps   2⌊log₂ n⌋, and 2 more where n is no power of two
//	bytes   a rank sends 2·m·(p-1)/p; of those that are paired, the first sends m, and the second m more than the others
//	time    2·log₂ n·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ for powers of two; 2α + 2·m·β + m·γ more for others
//	wins    medium and large blocks on powers of two: the bytes of the ring in log n steps
//	order   in rank order, in brackets of halves: (x₀+x₁) + (x₂+x₃). The nearest ranks come first, so it is the same for all
//	        elements and message sizes: level 3
//	source  Rabenseifner, "Optimization of collective reduction operations" (2004); Thakur, Rabenseifner, Gropp (2005)
//
// In place: a half that arrives is not one that is sent.
func allReduceRabenseifner(s plan.Spec) design {
	f := foldRanks(s.Ranks)
	radices := factors(f.p)
	return design{split: f.p, alias: plan.InPlace, program: func(rank int) plan.Program {
		b := newLanes(exchange.lanes, f.p)
		block, seat := piece{0, f.p}, f.seat(rank)
		if rank != f.odd(seat) {
			b.add(sending, send(block.of(plan.In), rank+1))
			b.add(receiving, recv(block.of(plan.Out), rank+1))
			return b.program()
		}
		from := plan.In
		if f.paired(seat) {
			b.add(receiving, msgReduce(block.of(plan.Out), block.of(plan.In), rank-1))
			from = plan.Out
		}
		groups := digits(seat, radices)
		for i := range groups {
			groups[i].fold = f
		}
		exchange.over(b, groups, block, from)
		if f.paired(seat) {
			b.add(sending, send(block.of(plan.Out), rank-1))
		}
		return b.program()
	}}
}
