package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceButterfly is recursive doubling in mixed radix. With n = f₀·f₁·…, the prime factors in
// ascending order, a rank's number has a digit for each factor. In round k the fₖ ranks that differ
// only in digit k send each other their partial sums, and each adds all of these in the order of
// the digit. No ranks have to be folded. With a prime number of ranks it is `direct`.
//
//	steps   Σ(2fₖ-3) in the longest chain, as in every round all ranks of a group wait for its first
//	        rank first; so log₂ n for powers of two, but 2 with two ranks
//	bytes   a rank sends m·Σ(fₖ-1)
//	time    Σ(fₖ-1)·(α + m·β + m·γ) where messages overlap
//	wins    small blocks, rank counts with small factors: 3·2^k ranks need no fold, which would add
//	        two steps in a row over the whole block
//	order   in rank order, bracketed by groups: (x₀+x₁+x₂) + (x₃+x₄+x₅). The same for all elements
//	        and message sizes: level 3
//	memory  two blocks of Tmp, used in turn; one block for one or two factors
//	source  Brooks, "The butterfly barrier" (1986), for the pattern; Ruefenacht, Bull, Booth,
//	        "Generalisation of recursive doubling for AllReduce" (2017), for radices other than two
//
// In place: only the last round writes Out, and In is sent in the first.
func allReduceButterfly(s plan.Spec) design {
	radices := factors(s.Ranks)
	if len(radices) == 1 {
		return allReduceDirect(s)
	}
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		b := newLanes(2, 1, blocksOfTmp(len(radices)-1)...)
		have := in(0)
		for i, g := range digits(rank, radices) {
			for k := 1; k < g.size; k++ {
				b.add(sending, send(have, g.rank(g.pos+k)))
			}
			to, last := tmp(i%len(b.tmp)), i == len(radices)-1
			if last {
				to = out(0)
			}
			b.reduceInOrder(g, to, to, have, last)
			have = to
		}
		return b.program()
	}}
}
