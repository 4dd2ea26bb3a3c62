package verify

import (
	"fmt"
	"math/bits"
)

// value is the content of a chunk: a tree, by number. Equal trees have equal numbers. 0 is nothing.
type value int32

// nothing is the content of memory that was never written.
const nothing value = 0

type nodeKind uint8

const (
	raw     nodeKind = iota // a chunk of In, as the caller left it
	scaled                  // the same, read by a step of a reducing collective
	reduced                 // left ⊕ right
	final                   // left, marked by a Final step
)

// node is a tree. chunk and count speak of the contributions in it.
type node struct {
	kind        nodeKind
	left, right value
	chunk       int32 // of In, that all contributions are
	rank        int32 // of a contribution, the first one of a tree
	count       int32
	shape       int32 // number of the tree of ranks that remains when chunks and marks are taken away
	flaw        *flaw // nil if the tree is sound
	at          Where // the step that made it first
}

// flaw is why a tree can be no part of a right result.
type flaw struct {
	reason Reason
	text   string
	at     Where
}

// values is the trees of one execution.
type values struct {
	ranks  int
	words  int // of a set of ranks
	nodes  []node
	sets   []uint64 // for each node the ranks that contribute, one bit each
	base   []int    // for each rank the value of the first chunk of its In
	known  map[[2]value]value
	shapes map[[2]int32]int32
}

// newValues makes the contributions of ranks that have chunks[rank] chunks of In.
func newValues(chunks []int) *values {
	n := len(chunks)
	v := &values{ranks: n, words: (n + 63) / 64, known: map[[2]value]value{}, shapes: map[[2]int32]int32{}}
	v.add(node{}, nothing, nothing)
	v.base = make([]int, n)
	for rank, c := range chunks {
		v.base[rank] = len(v.nodes)
		for i := range c {
			leaf := v.add(node{kind: raw, chunk: int32(i), rank: int32(rank), count: 1, shape: int32(rank), at: Where{rank, -1, -1}},
				nothing, nothing)
			v.set(leaf)[rank/64] |= 1 << (rank % 64)
		}
	}
	return v
}

// raw is the caller's content of a chunk of In.
func (v *values) raw(rank, chunk int) value { return value(v.base[rank] + chunk) }

func (v *values) set(x value) []uint64 { return v.sets[int(x)*v.words : (int(x)+1)*v.words] }

// add makes a node whose set is the union of those of a and b.
func (v *values) add(n node, a, b value) value {
	x := value(len(v.nodes))
	v.nodes = append(v.nodes, n)
	for i := range v.words {
		var w uint64
		if x != nothing {
			w = v.sets[int(a)*v.words+i] | v.sets[int(b)*v.words+i]
		}
		v.sets = append(v.sets, w)
	}
	return x
}

// Keys of marks in known; trees of ⊕ have two values that are not negative.
const (
	scaledMark value = -1
	finalMark  value = -2
)

// mark is x scaled on its way in, or x divided.
func (v *values) mark(x value, kind nodeKind, at Where) value {
	key := [2]value{x, scaledMark}
	if kind == final {
		key[1] = finalMark
	}
	if y, ok := v.known[key]; ok {
		return y
	}
	n := v.nodes[x]
	switch {
	case n.flaw != nil:
	case kind == final && n.kind == final:
		n.flaw = &flaw{PostScale, "a result is Final for the second time", at}
	case kind == final && int(n.count) < v.ranks:
		n.flaw = &flaw{PostScale, "a result is Final before all contributions are in it", at}
	}
	n.kind, n.left, n.right, n.at = kind, x, nothing, at
	y := v.add(n, x, x)
	v.known[key] = y
	return y
}

// reduce is a ⊕ b.
func (v *values) reduce(a, b value, at Where) value {
	key := [2]value{a, b}
	if y, ok := v.known[key]; ok {
		return y
	}
	l, r := &v.nodes[a], &v.nodes[b]
	n := node{kind: reduced, left: a, right: b, chunk: l.chunk, rank: l.rank, count: l.count + r.count, at: at,
		shape: v.shape(l.shape, r.shape), flaw: l.flaw}
	switch {
	case n.flaw != nil:
	case r.flaw != nil:
		n.flaw = r.flaw
	case l.kind == raw || r.kind == raw:
		n.flaw = &flaw{PreScale, "a contribution is used that was not scaled when it was read from in", at}
	case l.kind == final || r.kind == final:
		n.flaw = &flaw{PostScale, "something is added to a Final result", at}
	case l.chunk != r.chunk:
		n.flaw = &flaw{WrongValue, fmt.Sprintf("in[%d] of rank %d is added to in[%d] of rank %d", r.chunk, r.rank, l.chunk, l.rank), at}
	default:
		if rank := v.common(a, b); rank >= 0 {
			n.flaw = &flaw{Twice, fmt.Sprintf("in[%d] of rank %d is added to a sum that has it already", l.chunk, rank), at}
		}
	}
	y := v.add(n, a, b)
	v.known[key] = y
	return y
}

// common is a rank that contributes to both trees, -1 if none does.
func (v *values) common(a, b value) int {
	sa, sb := v.set(a), v.set(b)
	for i := range sa {
		if both := sa[i] & sb[i]; both != 0 {
			return i*64 + bits.TrailingZeros64(both)
		}
	}
	return -1
}

// absent is a rank that does not contribute to x, -1 if all do.
func (v *values) absent(x value) int {
	for i, w := range v.set(x) {
		if rank := i*64 + bits.TrailingZeros64(^w); ^w != 0 && rank < v.ranks {
			return rank
		}
	}
	return -1
}

// shape numbers trees of ranks; the numbers below ranks are the ranks.
func (v *values) shape(a, b int32) int32 {
	key := [2]int32{a, b}
	s, ok := v.shapes[key]
	if !ok {
		s = int32(v.ranks + len(v.shapes))
		v.shapes[key] = s
	}
	return s
}

// rankOrder is the shape of x₀ + x₁ + … from left to right.
func (v *values) rankOrder() int32 {
	s := int32(0)
	for rank := 1; rank < v.ranks; rank++ {
		s = v.shape(s, int32(rank))
	}
	return s
}
