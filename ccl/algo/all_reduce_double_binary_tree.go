package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceDoubleBinaryTree runs two binary trees at once, each for one half of the block, which is
// cut into S = 4 segments. The second tree is the first tree with the ranks in reverse order if n
// is even, and shifted by one if n is odd. So a rank that has children in one tree is a leaf of the
// other: all ranks send, receive and reduce about the same amount. Each tree has its own channel.
//
//	steps   2⌊log₂ n⌋ edges from a leaf to the root and back, in each tree, which pass S messages
//	        each; the longest chain is at most 4⌊log₂ n⌋ + 2(S-1)
//	bytes   a rank sends at most 2·m: m/2 to two parents, and m/2 to each of its children, of which
//	        it has at most two in all
//	time    (4⌊log₂ n⌋ + 2(S-1))·(α + m/2S·(β+γ)) at most, where the trees do not slow each other
//	        down
//	wins    medium and large blocks on many ranks: close to the bytes of the ring in log n steps
//	order   in rank order, bracketed by the tree, for the first half; another order for the second
//	        half: level 2
//	source  Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//	        scan" (2009); NCCL 2.4
//
// In place for the reasons of allReduceBinaryTree.
func allReduceDoubleBinaryTree(s plan.Spec) design {
	trees := [...]orderedTree{{ranks: s.Ranks}, secondTree(s.Ranks)}
	return design{split: len(trees) * treeSegments, chans: len(trees), alias: plan.InPlace,
		program: func(rank int) plan.Program {
			b := newLanes(len(trees)*treeLanes, len(trees)*treeSegments)
			for i, t := range trees {
				t.allReduce(b, rank, i*treeLanes, i, i*treeSegments)
			}
			return b.program()
		}}
}

// secondTree returns a tree whose inner ranks are leaves of the first tree. Inner ranks have odd
// numbers.
func secondTree(n int) orderedTree {
	return orderedTree{ranks: n, mirrored: n%2 == 0, shifted: n%2 == 1}
}
