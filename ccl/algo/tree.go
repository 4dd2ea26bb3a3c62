package algo

import "math/bits"

// A tree of n ranks in order: with ranks counted from 1, the ranks with k trailing zero bits are at
// height k, if all ranks of that height exist. Odd ranks are leaves. The subtree of a rank is
// consecutive ranks: those below its left child before it, and those below its right child after
// it. The tree is ⌊log₂ n⌋ high.

// treeParent returns the parent of v, counted from 0, among n ranks; -1 for the root.
func treeParent(v, n int) int {
	u := v + 1
	low := u & -u
	if up := u&^low | low<<1; up <= n {
		return up - 1
	}
	return u&^low - 1
}

// treeChildren returns the left and the right child of v among n ranks, -1 for none.
func treeChildren(v, n int) (left, right int) {
	u := v + 1
	half := u & -u >> 1
	if half == 0 {
		return -1, -1
	}
	for step := half; step > 0; step >>= 1 {
		if u+step <= n {
			return u - half - 1, u + step - 1
		}
	}
	return u - half - 1, -1
}

// treeHeight returns the number of edges from the root of n ranks down to the farthest leaf.
func treeHeight(n int) int { return bits.Len(uint(n)) - 1 }
