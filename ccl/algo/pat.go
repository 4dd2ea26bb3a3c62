package algo

// A pat is the index mathematics of parallel aggregated trees: n binomial trees, one for the block
// of each rank, which differ only in their root. A rank's place in a tree is its distance from the
// root: rank = root + place, modulo n. A block goes from the root to the other ranks over the
// largest distance first (n/2, n/4, …, 1), so the first messages, of one block, go far, and the
// last messages, of n/2 blocks, go to neighbours.
type pat struct {
	hops  []patHop
	order []int // the places in the order in which Tmp has them
	root  int   // index of place 0 in order
}

// patHop is a step: the places in a range of order send to the places dist further on. These are
// another range of order, in the same order.
type patHop struct {
	dist     int
	from, to piece
}

// newPAT grows order at both ends. The largest place is always its last, so the places that have a
// child at some distance are a range: all places so far, or all but the last.
func newPAT(n int) pat {
	t := pat{order: []int{0}}
	left := 0 // where order begins, relative to the root
	for d := 1 << ceilLog2(n) / 2; d > 0; d /= 2 {
		have := len(t.order)
		all := t.order[have-1]+d < n
		parents := t.order
		if !all {
			parents = parents[:have-1]
		}
		var children []int
		for _, place := range parents {
			children = append(children, place+d)
		}
		hop := patHop{dist: d, from: piece{left, len(children)}, to: piece{left + have, len(children)}}
		if all {
			t.order = append(t.order, children...)
		} else {
			left -= len(children)
			hop.to.at = left
			t.order = append(children, t.order...)
		}
		t.hops = append(t.hops, hop)
	}
	for i := range t.hops {
		t.hops[i].from.at -= left
		t.hops[i].to.at -= left
	}
	t.root = -left
	return t
}
