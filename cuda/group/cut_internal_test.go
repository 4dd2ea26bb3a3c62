package group

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// A call of one rank of a group with blocks of the given lengths.
func callOf(coll dtype.Collective, ranks, rank int, count func(i int) int) *exec.Call {
	call := &exec.Call{Coll: coll, Type: dtype.F32, Op: dtype.Sum}
	for i := range coll.InBlocks(ranks, rank, 0) {
		call.In = append(call.In, exec.Block{Count: count(i)})
	}
	for i := range coll.OutBlocks(ranks, rank, 0) {
		call.Out = append(call.Out, exec.Block{Count: count(i)})
	}
	return call
}

// The pieces of a block are all of it, and each element is in the chunk of the piece whose number
// is that of its chunk in the block.
func TestPiecesKeepChunks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		c := cut{size: 4, split: 1 + random.IntN(9), reach: 1 + random.IntN(20), areas: 1}
		block := random.IntN(300)
		c.pieces = max(1, ((block+c.split-1)/c.split+c.reach-1)/c.reach)
		seen := make([]bool, block)
		for piece := range c.pieces {
			count := c.count(piece, block)
			in := 0 // of the piece
			for j := range c.split {
				lo, hi := plan.Part(block, c.split, j)
				at, n := c.part(piece, block, j)
				pieceLo, pieceHi := plan.Part(count, c.split, j)
				require.Equal(t, pieceHi-pieceLo, n, "%+v, block %d, piece %d, chunk %d", c, block, piece, j)
				require.Equal(t, pieceLo, in)
				in += n
				for e := at; e < at+n; e++ {
					require.True(t, e >= lo && e < hi && !seen[e], "%+v, block %d, piece %d, chunk %d: element %d", c, block,
						piece, j, e)
					seen[e] = true
				}
			}
			require.Equal(t, count, in)
		}
		require.NotContains(t, seen, false, "%+v, block %d", c, block)
		require.Zero(t, c.count(c.pieces, block))
	}
}

// What ranks must agree on without talking follows from what all of them know: the number of
// pieces, and the lengths of a piece.
func TestRanksCutAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, coll := range dtype.Collectives() {
		for range 200 {
			ranks, split, slot := 1+random.IntN(8), 1+random.IntN(4), 4096<<random.IntN(8)
			counts := make([]int, ranks)
			for i := range counts {
				counts[i] = random.IntN(100_000)
			}
			length := func(i int) int { return counts[i] }
			var first cut
			for rank := range ranks {
				call := callOf(coll, ranks, rank, length)
				if coll == dtype.AllGather {
					call.In[0].Count = counts[rank]
				}
				if coll == dtype.ReduceScatter {
					call.Out[0].Count = counts[rank]
				}
				c, err := newCut(call, ranks, split, slot)
				require.NoError(t, err)
				require.LessOrEqual(t, c.areas*c.stride, slot)
				if rank == 0 {
					first = c
				}
				require.Equal(t, first.reach, c.reach, "%v rank %d", coll, rank)
				if !c.agree {
					require.Equal(t, first.pieces, c.pieces, "%v rank %d", coll, rank)
				}
			}
		}
	}
}

// Blocks of In and Out that may not share memory are in different areas.
func TestAreas(t *testing.T) {
	const ranks = 4
	slot := make([]byte, 1<<20)
	for _, coll := range dtype.Collectives() {
		for rank := range ranks {
			call := callOf(coll, ranks, rank, func(int) int { return 1000 })
			c, err := newCut(call, ranks, 1, len(slot))
			require.NoError(t, err)
			place := func(blocks []exec.Block, at func(*exec.Call, int, int) int) {
				for i := range blocks {
					blocks[i].Ptr = unsafe.Add(unsafe.Pointer(unsafe.SliceData(slot)), at(call, rank, i))
				}
			}
			place(call.In, c.in)
			place(call.Out, c.out)
			_, err = call.Overlap(rank)
			require.NoError(t, err, "%v rank %d", coll, rank)
		}
	}
}

func TestSlotTooSmall(t *testing.T) {
	call := callOf(dtype.AllToAll, 64, 0, func(int) int { return 10 })
	_, err := newCut(call, 64, 1, 4096)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "all_to_all in a group of 64 ranks needs more memory to stage its 128 blocks")
	require.ErrorContains(t, err, "GOCCL_CUDA_BUFFSIZE")
}
