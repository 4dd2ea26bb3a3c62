package algo

import "github.com/goccl/goccl/ccl/plan"

// gatherBinomial collects the blocks up a binomial tree. Ranks are numbered by their distance from
// the root; a rank puts the blocks of its children behind its own, the child with the smallest
// subtree first, and sends all blocks to its parent in one message.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m for itself and for each rank below it, the root nothing
//	time    ⌈log₂ n⌉·α + (n-1)·m·β
//	wins    small blocks; inner ranks must know the lengths of the blocks that they pass on
//	memory  the blocks of its subtree at an inner rank. The blocks from one child of the root may
//	        belong to the end and to the beginning of Out; the root receives these in Tmp
//	source  Thakur, Rabenseifner, Gropp (2005); Open MPI coll/base "binomial"
//
// In place: the root's In is its own block of Out, and its copy does nothing.
func gatherBinomial(s plan.Spec) design {
	return design{needs: subtreeNeeds(s), alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		v := wrap(rank-s.Root, n)
		size := binomialSize(v, n)
		parent := wrap(binomialParent(v)+s.Root, n)
		if v > 0 && size == 1 {
			return program([]plan.Step{send(in(0), parent)}, nil)
		}
		var lengths []plan.Extent
		recvs := []plan.Step{copyStep(tmp(0), in(0))}
		if v == 0 {
			recvs[0].Dst = out(rank)
		} else {
			lengths = subtreeLengths(rank, size, n)
		}
		for _, c := range binomialChildren(v, n) {
			from := wrap(c+s.Root, n)
			blocks := piece{c - v, binomialSize(c, n)}
			if v > 0 {
				recvs = append(recvs, recv(blocks.of(plan.Tmp), from))
				continue
			}
			parts := rotatedRange(rank, c, blocks.n, n)
			if len(parts) == 1 {
				recvs = append(recvs, recv(parts[0].ordered.of(plan.Out), from))
				continue
			}
			recvs = append(recvs, recv(piece{0, blocks.n}.of(plan.Tmp), from))
			for _, part := range parts {
				recvs = append(recvs, copyStep(part.ordered.of(plan.Out),
					piece{part.rotated.at - c, part.rotated.n}.of(plan.Tmp)))
			}
			lengths = subtreeLengths(from, blocks.n, n)
		}
		if v == 0 {
			return program(nil, recvs, lengths...)
		}
		return program([]plan.Step{send(piece{0, size}.of(plan.Tmp), parent, afterRecv(len(recvs)-1))},
			recvs, lengths...)
	}}
}
