package exec

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// MaxCounted is how many bytes the blocks of an operation may have together when its plan forwards blocks of other ranks
// (plan.Counts). It bounds the intermediate memory that the lengths of peers can make a rank take.
const MaxCounted = 16 << 30

// exchange is the first phase of an operation whose plan has chunks as long as blocks of other ranks: an all_gather of what each
// rank knows of its own.
type exchange struct {
	counting bool     // this phase runs
	after    *lowered // the program that comes then
	matrix   []uint64 // a row of lengths, in elements, of each rank
	row      int      // lengths of one rank
	own      []uint64
	in, out  []Block
	typeSize int
}

// beginCounts binds the exchange of lengths in front of low.
func (c *Comm) beginCounts(op *Op, low *lowered) error {
	cur := &c.cur
	call := &op.call
	cur.row = 1
	if call.Coll == dtype.AllToAll {
		cur.row = c.size
	}
	gather, err := c.lowered(dtype.AllGather, 0, int64(c.size)*int64(cur.row)*8)
	if err != nil {
		return err
	}
	if gather.counts {
		return fault.New(fault.NotSupported, "plan %s of all_gather cannot exchange the lengths of blocks, since it asks for them itself", gather.name)
	}
	if cap(cur.matrix) < c.size*cur.row {
		cur.matrix, cur.own = make([]uint64, c.size*cur.row), make([]uint64, cur.row)
	}
	cur.matrix, cur.own = cur.matrix[:c.size*cur.row], cur.own[:cur.row]
	switch call.Coll {
	case dtype.AllToAll:
		for i, b := range call.In {
			cur.own[i] = uint64(b.Count)
		}
	case dtype.Gather:
		cur.own[0] = uint64(call.In[0].Count)
	default:
		cur.own[0] = uint64(call.Out[0].Count)
	}
	cur.in = append(cur.in[:0], Block{unsafe.Pointer(unsafe.SliceData(cur.own)), cur.row})
	cur.out = cur.out[:0]
	for r := range c.size {
		cur.out = append(cur.out, Block{unsafe.Pointer(&cur.matrix[r*cur.row]), cur.row})
	}
	if c.cutPieces(gather, cur.in, cur.out, 8); cur.last > 0 {
		return fault.New(fault.NotSupported, "plan %s of all_gather cannot exchange the lengths of blocks: it has too many chunks of a window", gather.name)
	}
	cur.op, cur.after, cur.counting, cur.typeSize = op, low, true, call.Type.Size()
	if err := c.bindProgram(gather, cur.in, cur.out, 8); err != nil {
		return err
	}
	cur.print = c.printOf(op, low)
	cur.print.phase = phaseCounts
	cur.print.hash ^= gather.hash
	cur.pre, cur.post = 1, 1
	return nil
}

// counted ends the exchange: it checks what the others said, and binds the program that needs it. The operation may be refused alone, for a
// reason that every rank finds in the same lengths; an error ends the group.
func (c *Comm) counted(op *Op) (refused, err error) {
	cur := &c.cur
	low := cur.after
	cur.counting = false
	limit := uint64(maxBytes / cur.typeSize)
	total := uint64(0)
	for i, n := range cur.matrix {
		if n > limit {
			return nil, fault.Peer(fault.Mismatch, i/cur.row, "says that a block of its has %d elements, more than any block", n)
		}
		if total += n * uint64(cur.typeSize); total > MaxCounted {
			return fault.New(fault.NotSupported,
				"plan %s forwards blocks of other ranks; together they have more than %d bytes, the most that it may take (%d up to rank %d); choose a direct algorithm",
				low.name, MaxCounted, total, i/cur.row), nil
		}
	}
	if err := c.checkCounts(op); err != nil {
		return nil, err
	}
	c.cutPieces(low, op.call.In, op.call.Out, op.call.Type.Size())
	return nil, c.bind(op, low)
}

// checkCounts compares what the others said with what this rank knows.
func (c *Comm) checkCounts(op *Op) error {
	cur := &c.cur
	var err error
	switch call := &op.call; call.Coll {
	case dtype.AllToAll:
		for r, b := range call.Out {
			if err = sameCount(r, cur.matrix[r*cur.row+c.rank], b.Count, "the block from it"); err != nil {
				return err
			}
		}
	case dtype.Scatter:
		for r, b := range call.In {
			if err = sameCount(r, cur.matrix[r], b.Count, "the block for it"); err != nil {
				return err
			}
		}
	case dtype.Gather:
		for r, b := range call.Out {
			if err = sameCount(r, cur.matrix[r], b.Count, "the block from it"); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameCount compares what a peer says of a block with what this rank knows.
func sameCount(peer int, said uint64, known int, what string) error {
	if said == uint64(known) {
		return nil
	}
	return fault.Peer(fault.Mismatch, peer, "%s has %d elements here, and rank %d says %d", what, known, peer, said)
}

// told is the bytes of a chunk, from the lengths that were exchanged.
func (cur *cursor) told(e plan.Extent) int {
	i := e.From
	if cur.op.call.Coll == dtype.AllToAll {
		i = e.From*cur.row + e.To
	}
	_, n := cur.share(int(cur.matrix[i]))
	lo, hi := plan.Part(n, cur.low.split, e.Part)
	return (hi - lo) * cur.typeSize
}

// forget gives the matrix of a large group back.
func (x *exchange) forget() {
	x.counting, x.after = false, nil
	if 8*cap(x.matrix) > keepTmp {
		x.matrix = nil
	}
}

// isSystem reports whether a rank that could not begin an operation is alone with that: the others have begun it.
func isSystem(err error) bool {
	f, ok := err.(*fault.Error)
	return ok && f.Code == fault.System
}
