package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceTorus2D arranges the ranks in R rows of C, by the shape of the spec ({C, R}), else in
// the most square grid with C ≥ R. Each row reduces around its ring, so that a rank has the row's
// sum of 1/C of the block. Each column reduces this part around its ring and puts it together
// again. Then each row puts the block together. 1×n is the ring.
//
//	steps   2(C-1) + 2(R-1)
//	bytes   a rank sends 2·m·(n-1)/n, the least possible, to its right and its lower neighbour
//	time    2(C+R-2)·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ
//	wins    medium and large blocks on many ranks, where the ranks of a row and the ranks of a
//	        column are near each other: the bytes of the ring with 4√n steps
//	order   along the ring of the row, then along the ring of the column, so the order differs
//	        between chunks; all ranks get the same bits, in every run: level 2
//	source  Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash"
//	        (2018); Ying et al., "Image classification at supercomputer scale" (2018)
//
// In place for the reasons of allReduceRing, in each ring.
func allReduceTorus2D(s plan.Spec) design {
	shape := grid(s)
	return design{split: s.Ranks, alias: plan.InPlace, program: func(rank int) plan.Program {
		return ring.allReduce(digits(rank, shape), s.Ranks)
	}}
}
