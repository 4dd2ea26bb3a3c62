package verify

import "github.com/goccl/goccl/ccl/dtype"

// allRoots is up to how many ranks every root is a case.
const allRoots = 16

// Roots is the roots to verify a collective with: all of them in small groups, then the first, the
// second and the last; 0 where the collective has none.
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
