package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceMesh2D is allReduceTorus2D on a grid that does not wrap around: the first and the last
// rank of a row or a column are not neighbours. In a line, each part of the block goes from both
// ends to the rank that it belongs to, and each rank on the way adds its contribution. The part
// with the longest way goes first. The sums go from their ranks to both ends. 1×n is a line.
//
//	steps   2(C-1) + 2(R-1) in each of two directions at once, and one more in each line of three or
//	        more ranks, to add the second direction
//	bytes   an inner rank sends 2m + 2·m/C to at most four neighbours, as it passes on each sum in
//	        both directions; a rank at the end of a line sends less
//	time    up to 2(C+R-1)·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ where a rank can send and receive in both
//	        directions at once
//	wins    large blocks on a grid without links around the edges, where a ring's last message would
//	        cross all the others
//	order   in rank order within a line, in brackets that differ between parts: level 2
//	source  Barnett, Littlefield, Payne, van de Geijn, "Global combine algorithms for 2-D meshes
//	        with wormhole routing" (1995)
//
// In place: a part passes a rank in one direction only, and its sum comes back only after that.
func allReduceMesh2D(s plan.Spec) design {
	shape := grid(s)
	return design{split: s.Ranks, alias: plan.InPlace, program: func(rank int) plan.Program {
		return line.allReduce(digits(rank, shape), s.Ranks)
	}}
}
