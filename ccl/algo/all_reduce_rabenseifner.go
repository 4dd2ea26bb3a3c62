package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceRabenseifner halves, then doubles. In round k of the first half, two ranks whose numbers
// differ in bit k take one half each of the part that they both have: a rank sends the other half,
// and adds the half that it receives to its own. Then each rank has the sum of 1/p of the block.
// The second half goes back: in each round two ranks swap the parts that they have. Ranks beyond a
// power of two are folded as in recursive doubling: n = p + r, p = 2^⌊log₂ n⌋.
//
//	steps   2⌊log₂ n⌋, and 2 more where n is not a power of two
//	bytes   a rank sends 2·m·(p-1)/p; of paired ranks, the first sends m, and the second m more than
//	        the others
//	time    2·log₂ n·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ for powers of two; 2α + 2·m·β + m·γ more for
//	        others
//	wins    medium and large blocks on powers of two: the bytes of the ring in log n steps
//	order   in rank order, bracketed by halves: (x₀+x₁) + (x₂+x₃). The nearest ranks come first, so
//	        the order is the same for all elements and message sizes: level 3
//	source  Rabenseifner, "Optimization of collective reduction operations" (2004); Thakur,
//	        Rabenseifner, Gropp (2005)
//
// In place: in each round, the half that a rank receives is not the half that it sends.
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
