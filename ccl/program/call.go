package program

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// Block is one contiguous part of a caller's buffer: Count elements at Ptr. It must stay valid
// until the operation has ended.
type Block struct {
	Ptr   unsafe.Pointer
	Count int
}

// Call is what a rank requests. The numbers of blocks in In and Out are those of
// dtype.Collective.InBlocks and OutBlocks; send has one In block and recv has one Out block.
type Call struct {
	Coll    dtype.Collective
	Type    dtype.Type
	Op      dtype.Op
	Root    int     // root, or peer of send and recv (p2p.AnySource for recv)
	Tag     uint32  // send and recv
	Factor  float64 // dtype.PremulSum
	In, Out []Block
	Timeout time.Duration // 0: the timeout of the communicator
	Batch   uint32        // operations that were issued together share a number, for the recorder; 0 for none
	Whole   int64         // of a piece: the Bytes of the whole call, by which the algorithm is chosen; else 0
}

// String returns the call as errors show it: "all_reduce of 1048576 x f32 (sum)".
func (c *Call) String() string {
	s := c.Coll.String()
	switch {
	case c.Coll == dtype.Barrier:
		return s
	case c.Coll == dtype.Send:
		return fmt.Sprintf("send of %d x %v to rank %d, tag %d", c.In[0].Count, c.Type, c.Root, c.Tag)
	case c.Coll == dtype.Recv && c.Root < 0:
		return fmt.Sprintf("recv of %d x %v from any rank, tag %d", c.Out[0].Count, c.Type, c.Tag)
	case c.Coll == dtype.Recv:
		return fmt.Sprintf("recv of %d x %v from rank %d, tag %d", c.Out[0].Count, c.Type, c.Root, c.Tag)
	}
	s += fmt.Sprintf(" of %s x %v", counts(c.In, c.Out), c.Type)
	if c.Coll.Reduces() {
		s += fmt.Sprintf(" (%v)", c.Op)
	}
	if c.Coll.Rooted() {
		s += fmt.Sprintf(", root %d", c.Root)
	}
	return s
}

func counts(in, out []Block) string {
	blocks := in
	if len(blocks) == 0 || len(out) > len(in) {
		blocks = out
	}
	if len(blocks) == 0 {
		return "0"
	}
	for i := range blocks { // not the pointers: a driver may be replacing them
		if blocks[i].Count != blocks[0].Count {
			return fmt.Sprintf("%d (in %d blocks)", Elements(blocks), len(blocks))
		}
	}
	if len(blocks) == 1 {
		return fmt.Sprint(blocks[0].Count)
	}
	return fmt.Sprintf("%dx%d", len(blocks), blocks[0].Count)
}

// MaxBytes is the largest size of a block. Lengths up to it fit the 48 bits that they have in what
// ranks announce.
const MaxBytes = 1 << 46

// Check refuses an invalid call. It is called before any data moves.
func (c *Call) Check(rank, ranks int) error {
	p2p := c.Coll == dtype.Send || c.Coll == dtype.Recv
	if !p2p && !c.Coll.Valid() {
		return fault.New(fault.Invalid, "%v is not an operation", c.Coll)
	}
	name := c.Coll.String()
	if c.Coll != dtype.Barrier && !c.Type.Valid() {
		return fault.New(fault.Invalid, "%s: %v is not an element type", name, c.Type)
	}
	if c.Coll.Reduces() {
		if err := dtype.Reducible(c.Type, c.Op); err != nil {
			return fault.New(fault.NotSupported, "%s: %v", name, err)
		}
	}
	lowest := 0
	if c.Coll == dtype.Recv {
		lowest = -1
	}
	if (c.Coll.Rooted() || p2p) && (c.Root < lowest || c.Root >= ranks) {
		what := "root"
		if p2p {
			what = "peer"
		}
		return fault.New(fault.Invalid, "%s: %s %d is not a rank of a group of %d", name, what, c.Root, ranks)
	}
	if c.Timeout < 0 {
		return fault.New(fault.Invalid, "%s: timeout %v is negative", name, c.Timeout)
	}
	wantIn, wantOut := c.Coll.InBlocks(ranks, rank, c.Root), c.Coll.OutBlocks(ranks, rank, c.Root)
	if len(c.In) != wantIn || len(c.Out) != wantOut {
		return fault.New(fault.Invalid, "%s: got %d input and %d output blocks, want %d and %d on rank %d of %d",
			name, len(c.In), len(c.Out), wantIn, wantOut, rank, ranks)
	}
	size := c.Type.Size()
	for _, blocks := range [2][]Block{c.In, c.Out} {
		for i, b := range blocks {
			if b.Count < 0 || b.Count > MaxBytes || b.Count*size > MaxBytes {
				return fault.New(fault.Invalid, "%s: block %d has %d elements", name, i, b.Count)
			}
			if b.Ptr == nil && b.Count > 0 {
				return fault.New(fault.Invalid, "%s: block %d has %d elements and no memory", name, i, b.Count)
			}
		}
	}
	return c.checkLengths(rank)
}

// checkLengths compares the lengths of the input and output block of this rank.
func (c *Call) checkLengths(rank int) error {
	if len(c.In) == 0 || len(c.Out) == 0 {
		return nil
	}
	in, out := 0, 0
	if len(c.In) > 1 {
		in = rank
	}
	if len(c.Out) > 1 {
		out = rank
	}
	if a, b := c.In[in].Count, c.Out[out].Count; a != b {
		return fault.New(fault.Invalid,
			"%v: the input block of this rank has %d elements, the output block %d; they must be equal", c.Coll, a, b)
	}
	return nil
}

// Overlap reports whether the operation is in place: In and Out share the memory of blocks that are
// the same block in both. Any other overlap is an error.
func (c *Call) Overlap(rank int) (inPlace bool, err error) {
	size := uintptr(c.Type.Size())
	for i, a := range c.In {
		for j, b := range c.Out {
			lo, hi := uintptr(a.Ptr), uintptr(b.Ptr)
			if a.Count == 0 || b.Count == 0 ||
				lo+uintptr(a.Count)*size <= hi || hi+uintptr(b.Count)*size <= lo {
				continue
			}
			own := i == j
			if len(c.In) != len(c.Out) {
				own = len(c.In) == 1 && j == rank || len(c.Out) == 1 && i == rank
			}
			if !own || lo != hi || a.Count != b.Count {
				return false, fault.New(fault.Invalid,
					"%v: input block %d and output block %d share memory; use separate buffers", c.Coll, i, j)
			}
			inPlace = true
		}
	}
	return inPlace, nil
}

// Bytes returns the size of the whole vector if all ranks know it, else 0. The choice of the
// algorithm depends on it.
func (c *Call) Bytes() int64 {
	if c.Whole != 0 {
		return c.Whole
	}
	var blocks []Block
	switch c.Coll {
	case dtype.AllReduce, dtype.Reduce, dtype.ReduceScatter:
		blocks = c.In
	case dtype.Broadcast, dtype.AllGather:
		blocks = c.Out
	}
	return int64(Elements(blocks)) * int64(c.Type.Size())
}

// Elements returns the number of elements of all blocks together.
func Elements(blocks []Block) (n uint64) {
	for i := range blocks {
		n += uint64(blocks[i].Count)
	}
	return n
}

// Uneven is announced in place of a length by ranks whose blocks have different lengths.
const Uneven = 1<<48 - 1

// EvenCount returns the number of elements of each block, or Uneven.
func EvenCount(blocks []Block) uint64 {
	for _, b := range blocks {
		if b.Count != blocks[0].Count {
			return Uneven
		}
	}
	return uint64(blocks[0].Count)
}

// sameCounts reports whether all blocks of an all_to_all have the same length.
func (c *Call) sameCounts() bool {
	count := EvenCount(c.In)
	return count != Uneven && count == EvenCount(c.Out)
}
