package algo

import "github.com/goccl/goccl/ccl/plan"

// rotation is a range of blocks: where it is in rank order, and where it is in the order that
// begins with some rank.
type rotation struct{ ordered, rotated piece }

// rotated cuts n blocks into one or two ranges that are contiguous in both orders: rank order, and
// the order that begins with rank first and wraps around.
func rotated(first, n int) []rotation {
	return rotatedRange(first, 0, n, n)
}

// rotatedRange is rotated for the blocks [at, at+count) of the rotated order only.
func rotatedRange(first, at, count, n int) []rotation {
	from := wrap(first+at, n)
	head := min(count, n-from)
	parts := []rotation{{piece{from, head}, piece{at, head}}}
	if head < count {
		parts = append(parts, rotation{piece{0, count - head}, piece{at + head, count - head}})
	}
	return parts
}

// rotatedRefs returns all blocks of a buffer that has one for each rank, from rank first on.
func rotatedRefs(first, n int, buf plan.Buffer) []plan.Ref {
	var refs []plan.Ref
	for _, part := range rotated(first, n) {
		refs = append(refs, plan.Ref{Buf: buf, At: part.ordered.at, N: part.ordered.n})
	}
	return refs
}
