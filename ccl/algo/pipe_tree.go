package algo

import "github.com/goccl/goccl/ccl/plan"

// treeSegments is the number of segments into which trees cut a block, or their half of it. While a
// rank passes one segment on, it receives the next.
const treeSegments = 4

// orderedTree is the tree of tree.go over ranks, in one of three numberings.
type orderedTree struct {
	ranks    int
	mirrored bool // rank n-1 is number 0
	shifted  bool // rank 1 is number 0, and rank 0 the last
}

func (t orderedTree) number(rank int) int {
	switch {
	case t.mirrored:
		return t.ranks - 1 - rank
	case t.shifted:
		return wrap(rank-1, t.ranks)
	}
	return rank
}

// rank is the inverse of number; it keeps -1.
func (t orderedTree) rank(v int) int {
	switch {
	case v < 0:
		return v
	case t.mirrored:
		return t.ranks - 1 - v
	case t.shifted:
		return wrap(v+1, t.ranks)
	}
	return v
}

// parent returns the parent of a rank, -1 for the root.
func (t orderedTree) parent(rank int) int { return t.rank(treeParent(t.number(rank), t.ranks)) }

// children returns the children of a rank: those that come before it in order, and those after it.
func (t orderedTree) children(rank int) (before, after []int) {
	left, right := treeChildren(t.number(rank), t.ranks)
	if t.mirrored {
		left, right = right, left
	}
	if left >= 0 {
		before = append(before, t.rank(left))
	}
	if right >= 0 {
		after = append(after, t.rank(right))
	}
	return before, after
}

// The lanes of a tree, relative to its first lane.
const (
	upSends = iota
	upRecvs
	downRecvs
	downSends
	treeLanes
)

// allReduce adds the steps that reduce treeSegments chunks, from the given chunk on, up the tree
// and send the sums down.
func (t orderedTree) allReduce(b *lanes, rank, lane, channel, chunk int) {
	add := func(l int, s plan.Step) {
		s.Chan = channel
		b.add(lane+l, s)
	}
	parent := t.parent(rank)
	before, after := t.children(rank)
	for i := chunk; i < chunk+treeSegments; i++ {
		have := in(i)
		for _, child := range before {
			add(upRecvs, msgReduce(out(i), have, child))
			have = out(i)
		}
		for _, child := range after {
			add(upRecvs, recvReduce(out(i), have, child))
			have = out(i)
		}
		if parent >= 0 {
			add(upSends, send(have, parent))
			continue
		}
		lane := b.steps[lane+upRecvs]
		lane[len(lane)-1].Final = true
	}
	for i := chunk; i < chunk+treeSegments; i++ {
		if parent >= 0 {
			add(downRecvs, recv(out(i), parent))
		}
		for _, child := range append(before, after...) {
			add(downSends, send(out(i), child))
		}
	}
}
