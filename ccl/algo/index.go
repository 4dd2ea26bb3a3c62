package algo

import "math/bits"

// wrap returns i modulo n, in [0, n).
func wrap(i, n int) int {
	i %= n
	if i < 0 {
		i += n
	}
	return i
}

// ceilLog2 returns the smallest k with 2^k ≥ n, for n ≥ 1: the depth of a binomial tree of n ranks.
func ceilLog2(n int) int { return bits.Len(uint(n - 1)) }

// In a binomial tree of n ranks, rank 0 is the root, the parent of rank v is v without its lowest 1
// bit, and the subtree of v is the ranks from v to below v + (its lowest 1 bit), as far as they
// exist. With another root, ranks are renumbered by their distance from the root.

// binomialParent returns the parent of v > 0.
func binomialParent(v int) int { return v & (v - 1) }

// binomialChildren returns the children of v among n ranks, the child with the smallest subtree
// first. The subtrees, in this order, are the ranks v+1, v+2 to v+3, v+4 to v+7 and so on.
func binomialChildren(v, n int) []int {
	var children []int
	for bit := 1; v&bit == 0 && v+bit < n; bit <<= 1 {
		children = append(children, v+bit)
	}
	return children
}
