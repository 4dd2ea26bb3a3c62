package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceBinaryTree reduces up a binary tree and sends the result down again. The tree is in
// order: the sum from a rank's left child is over ranks before it, the sum from its right child
// over ranks after it. The block is cut into S = 4 segments, so that a rank receives one segment
// while it sends another; results go down while other segments still come up.
//
//	steps   2⌊log₂ n⌋ edges from a leaf to the root and back, which pass S messages each; a rank
//	        serves its two children in turn, so that the longest chain is at most 4⌊log₂ n⌋ + 2(S-1)
//	bytes   a rank sends m to its parent and m to each of its children, of which it has at most two
//	time    at most (4⌊log₂ n⌋ + 2(S-1))·(α + m/S·(β+γ)) where messages up and messages down do not
//	        slow each other down
//	wins    medium blocks; the root sends at most 2·m, and in a binomial tree m·⌈log₂ n⌉
//	order   in rank order, bracketed by the tree: (x₀+x₁+x₂) + x₃ + (x₄+x₅+x₆). The same for all
//	        elements and message sizes: level 3
//	source  Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//	        scan" (2009), §2; NCCL tree
//
// In place: all partial results are in Out; a result arrives after the partial result has been
// sent.
func allReduceBinaryTree(s plan.Spec) design {
	return design{split: treeSegments, alias: plan.InPlace, program: func(rank int) plan.Program {
		b := newLanes(treeLanes, treeSegments)
		orderedTree{ranks: s.Ranks}.allReduce(b, rank, 0, 0, 0)
		return b.program()
	}}
}
