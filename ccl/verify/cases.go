package verify

import "github.com/goccl/goccl/ccl/dtype"

// allRoots is the largest number of ranks for which every root is verified.
const allRoots = 16

// Roots returns the roots to verify a collective with: all of them in small groups, otherwise the
// first, the second and the last; 0 if the collective has no root.
func Roots(coll dtype.Collective, ranks int) []int {
	switch {
	case !coll.Rooted():
		return []int{0}
	case ranks > allRoots:
		return []int{0, 1, ranks - 1}
	}
	roots := make([]int, ranks)
	for i := range roots {
		roots[i] = i
	}
	return roots
}
