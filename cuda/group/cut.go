package group

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/mem"
)

// cut says how a call is cut into pieces. Each block of the call has split chunks, as in its plan.
// A piece has up to reach elements of each chunk, and fills areas of a slot: one for each block,
// but the same one for blocks of In and Out that may be in place.
type cut struct {
	size, split, reach int
	areas              int
	stride             int  // bytes from one area to the next
	pieces             int  // of this rank; at least 1
	agree              bool // other ranks may have another number of pieces
}

// A call is cut into pieces of leastPiece bytes or more, and into goodPieces of them at least if it
// is long enough for that: so the copies of one piece overlap with the transport of another.
const (
	leastPiece = 512 << 10
	goodPieces = 4
)

// newCut cuts a call for slots of the given number of bytes. split is the number of chunks of a
// block in the plan of the call.
func newCut(call *exec.Call, ranks, split, slot int) (cut, error) {
	c := cut{size: call.Type.Size(), split: split, pieces: 1, areas: areasOf(call.Coll, ranks)}
	if c.areas == 0 {
		return c, nil
	}
	longest := 0
	for _, blocks := range [2][]exec.Block{call.In, call.Out} {
		for _, b := range blocks {
			longest = max(longest, b.Count)
		}
	}
	longest = (longest + split - 1) / split
	most := slot / c.areas &^ (mem.Align - 1) / (c.size * split)
	if most == 0 {
		return c, fault.New(fault.NotSupported,
			"%v in a group of %d ranks needs more memory to stage its %d blocks than the %d bytes of a slot; "+
				"a larger GOCCL_CUDA_BUFFSIZE would help", call.Coll, ranks, c.areas*split, slot)
	}
	c.reach = most
	switch call.Coll {
	case dtype.AllToAll, dtype.Gather, dtype.Scatter:
		c.agree = true
	default:
		least := leastPiece / (c.areas * c.size * split)
		c.reach = max(1, min(most, max(least, (longest+goodPieces-1)/goodPieces)))
	}
	c.pieces = max(1, (longest+c.reach-1)/c.reach)
	c.stride = program.Aligned(min(c.reach, longest) * split * c.size)
	return c, nil
}

// areasOf returns the number of areas that a call of a group of so many ranks needs.
func areasOf(coll dtype.Collective, ranks int) int {
	switch coll {
	case dtype.Barrier:
		return 0
	case dtype.AllToAll:
		return 2 * ranks
	case dtype.AllGather, dtype.ReduceScatter, dtype.Gather, dtype.Scatter:
		return ranks
	}
	return 1
}

// in and out return the offset in a slot of block i of In or Out of a rank.
func (c *cut) in(call *exec.Call, rank, i int) int {
	if c.areas > 1 && len(call.In) == 1 {
		i = rank
	}
	return i * c.stride
}

func (c *cut) out(call *exec.Call, rank, i int) int {
	switch {
	case call.Coll == dtype.AllToAll:
		i += len(call.In)
	case c.areas > 1 && len(call.Out) == 1:
		i = rank
	}
	return i * c.stride
}

// count returns how many elements of a block belong to a piece.
func (c *cut) count(piece, block int) (n int) {
	if piece >= c.pieces {
		return 0
	}
	for j := range c.split {
		_, part := c.part(piece, block, j)
		n += part
	}
	return n
}

// part returns which elements of a block belong to a piece and to chunk j: n of them, from element
// at on. The first chunks have one element more if the block is not a multiple of them (plan.Part),
// and that is also true of their parts.
func (c *cut) part(piece, block, j int) (at, n int) {
	lo, hi := plan.Part(block, c.split, j)
	at = min(lo+piece*c.reach, hi)
	return at, min(c.reach, hi-at)
}
