package group_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda/cudatest"
)

var full = flag.Bool("group.full", false, "the whole matrix, and 1,000 seeds")

// quick is a device that never pauses.
var quick = cudatest.Options{Delay: -1}

// Every collective of every type with every operator, in place and not, has the bits that it has on
// the processor. The calls have several pieces.
func TestMatrix(t *testing.T) {
	for ranks := 2; ranks <= 8; ranks++ {
		if skipped(ranks) {
			continue
		}
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			w := world(t, ranks, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10})
			everyCall(t, w)
			end(t, w)
		})
	}
}

// skipped reports whether a matrix leaves out a number of ranks.
func skipped(ranks int) bool { return !*full && ranks > 3 && (ranks < 8 || testing.Short()) }

// everyCall makes calls of each kind, or some of them.
func everyCall(t *testing.T, w []*rank) { someCalls(t, w, *full) }

// someCalls makes calls of all kinds, or of one in twelve, in short runs of one in 35, but for some
// collectives.
func someCalls(t *testing.T, w []*rank, all bool, but ...dtype.Collective) {
	ranks := len(w)
	seed := uint64(ranks) << 16
	kind, each := ranks, 12
	if all {
		each = 1
	} else if testing.Short() {
		each = 35
	}
	for _, coll := range dtype.Collectives() {
		if slices.Contains(but, coll) {
			continue
		}
		for _, typ := range dtype.Types() {
			for _, op := range dtype.Ops() {
				if coll.Reduces() && dtype.Reducible(typ, op) != nil || !coll.Reduces() && op != ccl.Sum {
					continue
				}
				for _, inPlace := range []bool{false, true} {
					if kind++; kind%each != 0 {
						continue
					}
					seed++
					call := ccl.Call{Coll: coll, Type: typ, Op: op, Root: int(seed) % ranks, Factor: 1.5}
					count := lengthOf(coll, typ, ranks)
					length := func(_, _ int) int { return count }
					same(t, w, call, inPlace, seed, length, length)
				}
			}
		}
	}
}

// lengthOf returns the elements of a block so that a call has some pieces, and an uneven end.
func lengthOf(coll dtype.Collective, typ dtype.Type, ranks int) int {
	bytes := 150_000
	switch coll {
	case dtype.AllGather, dtype.ReduceScatter, dtype.Gather, dtype.Scatter:
		bytes /= ranks
	case dtype.AllToAll:
		bytes /= 2 * ranks
	}
	return bytes/typ.Size() + 3
}

// The plans that give each chunk another order of operands do so piece by piece, too: each of them
// in a full run, else every fourth.
func TestSameOrderOfOperands(t *testing.T) {
	for i, a := range algo.All() {
		if !a.Coll.Reduces() || strings.HasPrefix(a.Name, "hierarchical") || !*full && i%4 != 0 {
			continue
		}
		t.Run(a.Coll.String()+"="+a.Name, func(t *testing.T) {
			w := world(t, 4, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10, Algo: a.Coll.String() + "=" + a.Name})
			for j, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
				count := 1 + 3*lengthOf(a.Coll, typ, 4)
				length := func(_, _ int) int { return count }
				call := ccl.Call{Coll: a.Coll, Type: typ, Op: ccl.Sum, Root: 1}
				same(t, w, call, j%2 == 0, uint64(10*i+j), length, length)
			}
			end(t, w)
		})
	}
}

// Blocks of different lengths, of which ranks know only their own, are moved in as many pieces as
// the longest needs.
func TestUnequalBlocks(t *testing.T) {
	unequalBlocks(t, world(t, 3, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10}))
}

func unequalBlocks(t *testing.T, w []*rank) {
	lengths := [3][3]int{{0, 40_000, 7}, {1, 0, 0}, {12_345, 2, 60_001}}
	for _, inPlace := range []bool{false, true} {
		same(t, w, ccl.Call{Coll: dtype.AllToAll, Type: dtype.F32}, false, 1,
			func(rank, i int) int { return lengths[rank][i] }, func(rank, i int) int { return lengths[i][rank] })
		for root := range 3 {
			same(t, w, ccl.Call{Coll: dtype.Gather, Type: dtype.I16, Root: root}, inPlace, 2,
				func(rank, _ int) int { return lengths[2][rank] }, func(_, i int) int { return lengths[2][i] })
			same(t, w, ccl.Call{Coll: dtype.Scatter, Type: dtype.U8, Root: root}, inPlace, 3,
				func(_, i int) int { return lengths[0][i] }, func(rank, _ int) int { return lengths[0][rank] })
		}
		same(t, w, ccl.Call{Coll: dtype.AllGather, Type: dtype.F64}, inPlace, 4,
			func(rank, _ int) int { return lengths[2][rank] }, func(_, i int) int { return lengths[2][i] })
		same(t, w, ccl.Call{Coll: dtype.ReduceScatter, Type: dtype.F32, Op: ccl.Sum}, inPlace, 5,
			func(_, i int) int { return lengths[2][i] }, func(rank, _ int) int { return lengths[2][rank] })
	}
	end(t, w)
}

// Lengths from none to some elements more than fit one piece.
func TestLengths(t *testing.T) {
	lengths(t, world(t, 3, quick, ccl.GroupOptions{CudaBuffSize: 256 << 10}))
}

func lengths(t *testing.T, w []*rank) {
	seed := uint64(0)
	for _, coll := range dtype.Collectives() {
		for _, count := range []int{0, 1, 2, 3, 5, 1000, 16 << 10, 16<<10 + 1, 64<<10 - 1} {
			seed++
			length := func(_, _ int) int { return count }
			same(t, w, ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum, Root: 2}, seed%2 == 0, seed, length, length)
		}
	}
	end(t, w)
}
