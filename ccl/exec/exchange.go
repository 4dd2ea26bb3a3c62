package exec

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// MaxCounted is how many bytes the blocks of an operation may have together when its plan forwards
// blocks of other ranks (plan.Counts). It bounds the intermediate memory that the lengths of peers
// can make a rank take.
const MaxCounted = 16 << 30

// exchange is the first phase of an operation whose plan has chunks as long as blocks of other
// ranks: an all_gather of what each rank knows of its own.
type exchange struct {
	after    *lowered // the program that comes then
	matrix   []uint64 // a row of lengths, in elements, of each rank
	row      int      // lengths of one rank
	own      []uint64
	call     Call // the all_gather
	typeSize int  // of the operation
}

// beginCounts begins the exchange of lengths in front of low.
func (c *Comm) beginCounts(op *Op, low *lowered) error {
	x, call := &c.exchange, &op.call
	x.row = 1
	if call.Coll == dtype.AllToAll {
		x.row = c.size
	}
	gather, err := c.lowered(dtype.AllGather, 0, int64(c.size)*int64(x.row)*8)
	if err != nil {
		return err
	}
	if gather.counts {
		return fault.New(fault.NotSupported, "plan %s of all_gather cannot exchange the lengths of blocks, since it asks for them itself", gather.name)
	}
	x.matrix, x.own = resized(x.matrix, c.size*x.row), resized(x.own, x.row)
	switch call.Coll {
	case dtype.AllToAll:
		for i, b := range call.In {
			x.own[i] = uint64(b.Count)
		}
	case dtype.Gather:
		x.own[0] = uint64(call.In[0].Count)
	default:
		x.own[0] = uint64(call.Out[0].Count)
	}
	x.call.Coll, x.call.Type = dtype.AllGather, dtype.U64
	x.call.In = append(x.call.In[:0], Block{addressOf(x.own), x.row})
	x.call.Out = x.call.Out[:0]
	for r := range c.size {
		x.call.Out = append(x.call.Out, Block{address(&x.matrix[r*x.row]), x.row})
	}
	p := &c.cache.scratch
	if err := c.compile(p, gather, &x.call, 0); err != nil {
		return err
	}
	if p.last > 0 {
		return fault.New(fault.NotSupported, "plan %s of all_gather cannot exchange the lengths of blocks: it has too many chunks of a window", gather.name)
	}
	x.after, x.typeSize = low, call.Type.Size()
	print := printOf(call, low.hash^gather.hash)
	print.phase = phaseCounts
	p.fingerprint = print.meta(0)
	f := &c.frame
	f.op, f.counting = op, true
	return c.start(p, &x.call, op.seq)
}

// counted ends the exchange: it checks what the others said, and begins the program that needs it.
// The operation may be refused alone, for a reason that every rank finds in the same lengths; an
// error ends the group.
func (c *Comm) counted(f *frame) (status, error) {
	x, op := &c.exchange, f.op
	low := x.after
	f.counting = false
	limit := uint64(maxBytes / x.typeSize)
	total := uint64(0)
	for i, n := range x.matrix {
		if n > limit {
			return failed, fault.Peer(fault.Mismatch, i/x.row, "says that a block of its has %d elements, more than any block", n)
		}
		if total += n * uint64(x.typeSize); total > MaxCounted {
			return refused, fault.New(fault.NotSupported,
				"plan %s forwards blocks of other ranks; together they have more than %d bytes, the most that it may take (%d up to rank %d); choose a direct algorithm",
				low.name, MaxCounted, total, i/x.row)
		}
	}
	if err := c.checkCounts(op); err != nil {
		return failed, err
	}
	p, err := c.program(low, &op.call)
	if err == nil {
		err = c.start(p, &op.call, op.seq)
	}
	return failed, err
}

// checkCounts compares what the others said with what this rank knows.
func (c *Comm) checkCounts(op *Op) error {
	x, call := &c.exchange, &op.call
	blocks, own, what := call.Out, 0, "the block from it"
	switch call.Coll {
	case dtype.AllToAll:
		own = c.rank
	case dtype.Scatter:
		blocks, what = call.In, "the block for it"
	case dtype.Gather:
	default:
		return nil
	}
	for r, b := range blocks {
		if err := sameCount(r, x.matrix[r*x.row+own], b.Count, what); err != nil {
			return err
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

// length is the bytes of a chunk, from the lengths that were exchanged.
func (x *exchange) length(p *program, e plan.Extent, call *Call) int {
	i := e.From
	if call.Coll == dtype.AllToAll {
		i = e.From*x.row + e.To
	}
	_, n := p.share(int(x.matrix[i]))
	lo, hi := plan.Part(n, p.low.split, e.Part)
	return (hi - lo) * x.typeSize
}

// forget gives the matrix of a large group back.
func (x *exchange) forget() {
	x.after = nil
	if 8*cap(x.matrix) > mostKeptTmp {
		x.matrix = nil
	}
}

// isSystem reports whether a rank that could not begin an operation is alone with that: the others
// have begun it.
func isSystem(err error) bool {
	f, ok := err.(*fault.Error)
	return ok && f.Code == fault.System
}
