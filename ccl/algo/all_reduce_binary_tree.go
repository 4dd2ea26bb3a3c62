package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceBinaryTree reduces up a binary tree and sends the result down again. The tree is in order: what comes from a
// rank's left child is over the ranks before it, what comes from its right child over those after it. The block is cut
// into S = 4 segments, so that a rank receives one while it sends another; sums go down while others still come up.
//
//	steps   2⌊log₂ n⌋ edges from a leaf to the root and back, which pass S messages each; a rank serves its two children in
//	        turn, so that the longest chain is at most 4⌊log₂ n⌋ + 2(S-1)
//	bytes   a rank sends m to its parent and m to each of its children, of which it has at most two
//	time    at most (4⌊log₂ n⌋ + 2(S-1))·(α + m/S·(β+γ)) where what goes up and what goes down do not slow each other down
//	wins    medium blocks; the root sends at most 2·m, where a binomial tree has it send m·⌈log₂ n⌉
//	order   in rank order, in brackets of the tree: (x₀+x₁+x₂) + x₃ + (x₄+x₅+x₆). The same for all elements and message
//	        sizes: level 3
//	source  Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009), §2; NCCL tree
//
// In place: partial results are in Out from the first one on; a result comes after the partial one was sent.
func allReduceBinaryTree(s plan.Spec) design {
	return design{split: treeSegments, alias: plan.InPlace, program: func(rank int) plan.Program {
		b := newLanes(treeLanes, treeSegments)
		orderedTree{ranks: s.Ranks}.allReduce(b, rank, 0, 0, 0)
		return b.program()
	}}
}
