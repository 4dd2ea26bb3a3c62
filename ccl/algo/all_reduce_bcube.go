package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceBcube is Rabenseifner's algorithm in mixed radix. With n = f₀·f₁·…, the prime factors in
// ascending order, a rank's number has a digit for each factor. In round k of the first half, the
// fₖ ranks that differ only in digit k form a group. Each cuts the part of the block that it has
// into fₖ parts, sends every other rank of the group its part, and reduces its own part in the
// order of the digit. The second half goes back through the digits: each rank sends the part that
// it has to all others of the group. With n a power of two it is Rabenseifner's algorithm, with n
// prime it is `two_shot`.
//
//	steps   Σ(3fₖ-4) in the longest chain, as in every round of the first half all ranks of a group
//	        wait for its first rank first; 2·log₂ n for powers of two
//	bytes   a rank sends 2·m·(n-1)/n, the least possible
//	time    2·Σ(fₖ-1)·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ where messages overlap
//	wins    medium and large blocks, rank counts with small factors: fewest bytes without a fold;
//	        servers with one network port per digit
//	order   in rank order, bracketed by groups: (x₀+x₁+x₂) + (x₃+x₄+x₅). The same for all elements
//	        and message sizes: level 3
//	memory  m/(f₀·…·fₖ) of Tmp at most, where fₖ is the first odd factor; none for powers of two
//	source  Guo et al., "BCube: a high performance, server-centric network architecture for modular
//	        data centers" (2009), for the digits; Gloo allreduce_bcube
//
// In place: in each round, the parts that a rank receives are not the parts that it sends.
func allReduceBcube(s plan.Spec) design {
	radices := factors(s.Ranks)
	return design{split: s.Ranks, alias: plan.InPlace, program: func(rank int) plan.Program {
		return exchange.allReduce(digits(rank, radices), s.Ranks)
	}}
}
