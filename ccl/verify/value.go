package verify

import (
	"fmt"
	"math/bits"
)

// value is the content of a chunk: the number of a tree. Equal trees have equal numbers. 0 is
// nothing.
type value int32

// nothing is the content of memory that was never written.
const nothing value = 0

type nodeKind uint8

const (
	raw     nodeKind = iota // a chunk of In as the caller left it
	scaled                  // the same chunk, read by a step of a reducing collective
	reduced                 // left ⊕ right
	final                   // left, marked by a Final step
)

// spot names a step of a rank by its index in the code; lane is -1 for none.
type spot struct{ rank, lane, step int32 }

// node is a tree. chunk and count describe the contributions in it.
type node struct {
	kind  nodeKind
	chunk int32 // chunk of In that all contributions come from
	rank  int32 // of a contribution; in a tree, of its first one
	count int32
	set   int32 // number of the set of contributing ranks; -1-rank for one rank alone
	shape int32 // number of the tree of ranks that remains without chunks and marks
	at    spot  // the first step that made the tree
	flaw  *flaw // nil if the tree is right
}

// flaw is the reason why a tree cannot be part of a right result.
type flaw struct {
	reason Reason
	text   string
	at     spot
}

// values holds the trees of one plan. Large groups have millions of them, so they are kept in
// pages, which do not move.
type values struct {
	ranks  int
	words  int // words of a set of ranks
	count  int
	nodes  [][]node
	sets   [][]uint64 // pages of sets, one bit for each rank
	nsets  int
	base   []int     // for each rank, the value of the first chunk of its In
	scaled []value   // for each contribution, its scaled value, or nothing
	known  pairTable // results of reducing or marking values
	shapes pairTable
}

// Sizes of pages.
const (
	nodePage = 1 << 9
	setPage  = 1 << 8
)

// newValues creates the contributions of ranks that have chunks[rank] chunks of In.
func newValues(chunks []int) *values {
	n := len(chunks)
	v := &values{ranks: n, words: (n + 63) / 64}
	v.add(node{})
	v.base = make([]int, n)
	for rank, c := range chunks {
		v.base[rank] = v.count
		for i := range c {
			v.add(node{kind: raw, chunk: int32(i), rank: int32(rank), count: 1, set: -1 - int32(rank),
				shape: int32(rank), at: spot{int32(rank), -1, -1}})
		}
	}
	v.scaled = make([]value, v.count)
	return v
}

// raw returns the caller's content of a chunk of In.
func (v *values) raw(rank, chunk int) value { return value(v.base[rank] + chunk) }

func (v *values) node(x value) *node { return &v.nodes[x/nodePage][x%nodePage] }

func (v *values) add(n node) value {
	x := v.count
	if v.count++; x/nodePage == len(v.nodes) {
		v.nodes = append(v.nodes, make([]node, nodePage))
	}
	v.nodes[x/nodePage][x%nodePage] = n
	return value(x)
}

// stored returns the words of a stored set.
func (v *values) stored(set int32) []uint64 {
	lo := int(set%setPage) * v.words
	return v.sets[set/setPage][lo : lo+v.words]
}

// has reports whether a rank is in a set.
func (v *values) has(set int32, rank int) bool {
	if set < 0 {
		return int(-1-set) == rank
	}
	return v.stored(set)[rank/64]>>(rank%64)&1 != 0
}

// union returns the set of ranks in a or in b.
func (v *values) union(a, b int32) int32 {
	s := int32(v.nsets)
	if v.nsets++; int(s/setPage) == len(v.sets) {
		v.sets = append(v.sets, make([]uint64, setPage*v.words))
	}
	to := v.stored(s)
	for _, from := range [2]int32{a, b} {
		if from < 0 {
			rank := -1 - from
			to[rank/64] |= 1 << (rank % 64)
			continue
		}
		for i, w := range v.stored(from) {
			to[i] |= w
		}
	}
	return s
}

// Keys of marks in known; both keys of a tree of ⊕ are non-negative values.
const (
	scaledMark value = -1
	finalMark  value = -2
)

// mark returns x scaled, as it is when read from In, or x divided.
func (v *values) mark(x value, kind nodeKind, at spot) value {
	if kind == scaled && int(x) < len(v.scaled) && v.scaled[x] != nothing {
		return v.scaled[x]
	}
	with := scaledMark
	if kind == final {
		with = finalMark
	}
	if y := v.known.get(int32(x), int32(with)); y != 0 {
		return value(y)
	}
	n := *v.node(x)
	switch {
	case n.flaw != nil:
	case kind == final && n.kind == final:
		n.flaw = &flaw{PostScale, "a result is Final for the second time", at}
	case kind == final && int(n.count) < v.ranks:
		n.flaw = &flaw{PostScale, "a result is Final before all contributions are in it", at}
	}
	n.kind, n.at = kind, at
	y := v.add(n)
	if kind == scaled && int(x) < len(v.scaled) {
		v.scaled[x] = y
	} else {
		v.known.put(int32(x), int32(with), int32(y))
	}
	return y
}

// reduce returns a ⊕ b.
func (v *values) reduce(a, b value, at spot) value {
	if y := v.known.get(int32(a), int32(b)); y != 0 {
		return value(y)
	}
	l, r := v.node(a), v.node(b)
	n := node{kind: reduced, chunk: l.chunk, rank: l.rank, count: l.count + r.count, at: at,
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
		n.flaw = &flaw{WrongValue,
			fmt.Sprintf("in[%d] of rank %d is added to in[%d] of rank %d", r.chunk, r.rank, l.chunk, l.rank), at}
	default:
		if rank := v.common(l.set, r.set); rank >= 0 {
			n.flaw = &flaw{Twice,
				fmt.Sprintf("in[%d] of rank %d is added to a sum that has it already", l.chunk, rank), at}
		}
	}
	n.set = v.union(l.set, r.set)
	y := v.add(n)
	v.known.put(int32(a), int32(b), int32(y))
	return y
}

// common returns a rank that is in both sets, or -1 if there is none.
func (v *values) common(a, b int32) int {
	switch {
	case a < 0 && v.has(b, int(-1-a)):
		return int(-1 - a)
	case a < 0:
		return -1
	case b < 0:
		return v.common(b, a)
	}
	other := v.stored(b)
	for i, w := range v.stored(a) {
		if both := w & other[i]; both != 0 {
			return i*64 + bits.TrailingZeros64(both)
		}
	}
	return -1
}

// absent returns a rank that does not contribute to x, or -1 if all do.
func (v *values) absent(x value) int {
	n := v.node(x)
	if int(n.count) == v.ranks && n.flaw == nil {
		return -1
	}
	for rank := range v.ranks {
		if !v.has(n.set, rank) {
			return rank
		}
	}
	return -1
}

// shape returns the number of a tree of ranks; the numbers below ranks are the ranks themselves.
func (v *values) shape(a, b int32) int32 {
	s := v.shapes.get(a, b)
	if s == 0 {
		s = int32(v.ranks + v.shapes.count)
		v.shapes.put(a, b, s)
	}
	return s
}

// rankOrder returns the shape of x₀ + x₁ + … from left to right.
func (v *values) rankOrder() int32 {
	s := int32(0)
	for rank := 1; rank < v.ranks; rank++ {
		s = v.shape(s, int32(rank))
	}
	return s
}
