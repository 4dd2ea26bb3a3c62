package algo

import "github.com/goccl/goccl/ccl/plan"

// scatterBinomial sends the blocks down a binomial tree. Ranks are numbered by their distance from
// the root; a rank receives the blocks of its subtree in one message and passes on the blocks of
// its children's subtrees, the largest subtree first.
//
//	steps   ⌈log₂ n⌉
//	bytes   the root sends m·(n-1), other ranks m for each rank below them, the leaves nothing
//	time    ⌈log₂ n⌉·α + (n-1)·m·β
//	wins    small blocks; inner ranks must know the lengths of the blocks that they pass on
//	memory  the blocks of its subtree at an inner rank. One child of the root may have blocks at the
//	        end and at the beginning of In; the root puts these together in Tmp
//	source  Thakur, Rabenseifner, Gropp (2005); Open MPI coll/base "binomial"
//
// In place: the root's Out is its own block of In, and its copy does nothing.
func scatterBinomial(s plan.Spec) design {
	return design{needs: subtreeNeeds(s), alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		v := wrap(rank-s.Root, n)
		size := binomialSize(v, n)
		children := binomialChildren(v, n)
		var sends, recvs []plan.Step
		var lengths []plan.Extent
		switch {
		case v > 0 && size == 1:
			return program(nil, []plan.Step{recv(out(0), wrap(binomialParent(v)+s.Root, n))})
		case v > 0:
			recvs = []plan.Step{
				recv(piece{0, size}.of(plan.Tmp), wrap(binomialParent(v)+s.Root, n)),
				copyStep(out(0), tmp(0)),
			}
			lengths = subtreeLengths(rank, size, n)
		}
		for i := len(children) - 1; i >= 0; i-- {
			c := children[i]
			to := wrap(c+s.Root, n)
			blocks := piece{c - v, binomialSize(c, n)}
			src := blocks.of(plan.Tmp)
			if v == 0 {
				parts := rotatedRange(rank, c, blocks.n, n)
				src = parts[0].ordered.of(plan.In)
				if len(parts) > 1 {
					for _, part := range parts {
						sends = append(sends, copyStep(
							piece{part.rotated.at - c, part.rotated.n}.of(plan.Tmp), part.ordered.of(plan.In)))
					}
					src = piece{0, blocks.n}.of(plan.Tmp)
					lengths = subtreeLengths(to, blocks.n, n)
				}
			}
			step := send(src, to)
			if v > 0 && len(sends) == 0 {
				step.After = []plan.Point{afterRecv(0)}
			}
			sends = append(sends, step)
		}
		if v == 0 {
			sends = append(sends, copyStep(out(0), in(rank)))
		}
		return program(sends, recvs, lengths...)
	}}
}

// subtreeLengths returns the lengths of the size blocks of a rank's subtree: its own block and the
// blocks after it.
func subtreeLengths(rank, size, n int) []plan.Extent {
	var lengths []plan.Extent
	for i := range size {
		b := wrap(rank+i, n)
		lengths = append(lengths, plan.Extent{From: b, To: b})
	}
	return lengths
}

// subtreeNeeds returns the needs of a plan in which inner ranks of a binomial tree have blocks of
// other ranks. With fewer than four ranks there are no inner ranks.
func subtreeNeeds(s plan.Spec) plan.Need {
	if s.Ranks < 4 {
		return plan.Messages
	}
	return plan.Messages | plan.Counts
}
