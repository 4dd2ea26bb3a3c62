package exec

import (
	"math"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
)

// MaxCounted is the largest sum, in bytes, of the blocks of an operation whose plan forwards blocks
// of other ranks (plan.Counts). It bounds the intermediate memory that the lengths announced by
// peers can make a rank allocate.
const MaxCounted = 16 << 30

// exchange is the first phase of an operation that needs the lengths of other ranks' blocks: an
// all_gather of the lengths that each rank knows. Or the ranks tell each other how long trials took
// (trial.go), as numbers in place of the lengths.
type exchange struct {
	after *program.Lowered // the program that follows; nil after times
	program.Lengths
	own      []uint64
	call     Call // the all_gather
	typeSize int  // of the operation's elements
}

// beginCounts begins the exchange of lengths that precedes low.
func (r *runner) beginCounts(op *Op, low *program.Lowered) error {
	x, call := &r.exchange, &op.call
	row := 1
	if call.Coll == dtype.AllToAll {
		row = r.links.Size()
	}
	x.own = program.Resized(x.own, row)
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
	x.after, x.typeSize = low, call.Type.Size()
	return r.beginExchange(op, low.Hash)
}

// beginExchange begins the exchange of the numbers in own.
func (r *runner) beginExchange(op *Op, hash uint16) error {
	x := &r.exchange
	x.Row = len(x.own)
	gather, err := r.programs.lowered(r.programs.planner, dtype.AllGather, 0, int64(r.links.Size())*int64(x.Row)*8)
	if err != nil {
		return err
	}
	if gather.Counts {
		return fault.New(fault.NotSupported,
			"plan %s of all_gather cannot exchange the lengths of blocks, since it asks for them itself",
			gather.Name)
	}
	x.Matrix = program.Resized(x.Matrix, r.links.Size()*x.Row)
	x.call.Coll, x.call.Type = dtype.AllGather, dtype.U64
	x.call.In = append(x.call.In[:0], Block{Ptr: addressOf(x.own), Count: x.Row})
	x.call.Out = x.call.Out[:0]
	for peer := range r.links.Size() {
		x.call.Out = append(x.call.Out, Block{Ptr: address(&x.Matrix[peer*x.Row]), Count: x.Row})
	}
	p := &r.programs.scratch
	if err := r.programs.compile(p, gather, &x.call, &r.exchange.Lengths, 0); err != nil {
		return err
	}
	if p.Last > 0 {
		return fault.New(fault.NotSupported,
			"plan %s of all_gather cannot exchange the lengths of blocks: it has too many chunks of a window",
			gather.Name)
	}
	print := fingerprint.Of(&op.call, hash^gather.Hash)
	print.Phase = fingerprint.PhaseCounts
	p.fingerprint = print.Meta(0)
	f := &r.frame
	f.op, f.counting = op, true
	return r.start(p, &x.call, op.seq)
}

// counted ends the exchange: it checks the lengths that the peers sent, and begins the program that
// follows. Of an all_to_all all ranks now know the size, so its algorithm is chosen anew. With
// status refused counted ends this operation only, for a reason that every rank finds in the same
// lengths; other errors end the group.
func (r *runner) counted(f *frame) (status, error) {
	x, op := &r.exchange, f.op
	low := x.after
	if low == nil {
		return r.timesCame(f)
	}
	total, err := x.total()
	if err == nil {
		err = r.checkCounts(op)
	}
	if err != nil {
		return failed, err
	}
	f.counting = false // not before: the proof of a mismatch is of the operation, not of the exchange
	if op.call.Coll == dtype.AllToAll {
		each := int64(total) / int64(r.links.Size())
		if low, err = r.programs.lowered(r.programs.planner, dtype.AllToAll, 0, each); err != nil {
			return refused, err
		}
		if err := f.separate(op, low, r.links.Rank); err != nil {
			return failed, err
		}
	}
	if low.Counts && total > MaxCounted {
		return refused, fault.New(fault.NotSupported,
			"plan %s forwards blocks of other ranks; together they have %d bytes, and it may take %d at most; "+
				"choose a direct algorithm", low.Name, total, MaxCounted)
	}
	p := &r.programs.scratch // not kept: a call of the same shape must find the exchange first
	if err = r.programs.compile(p, low, &op.call, &r.exchange.Lengths, 0); err == nil {
		err = r.start(p, &op.call, op.seq)
	}
	return failed, err
}

// total returns the bytes of all blocks together.
func (x *exchange) total() (bytes uint64, err error) {
	limit := uint64(program.MaxBytes / x.typeSize)
	for i, n := range x.Matrix {
		if n > limit {
			return 0, fault.Peer(fault.Mismatch, i/x.Row,
				"says that a block of its has %d elements, more than any block", n)
		}
		bytes = min(bytes+n*uint64(x.typeSize), math.MaxInt64)
	}
	return bytes, nil
}

// checkCounts compares the lengths that the peers sent with those that this rank knows.
func (r *runner) checkCounts(op *Op) error {
	x, call := &r.exchange, &op.call
	blocks, own, what := call.Out, 0, "the block from it"
	switch call.Coll {
	case dtype.AllToAll:
		own = r.links.Rank
	case dtype.Scatter:
		blocks, what = call.In, "the block for it"
	case dtype.Gather:
	default:
		return nil
	}
	for peer, b := range blocks {
		if err := r.sameCount(peer, x.Matrix[peer*x.Row+own], b.Count, what); err != nil {
			return err
		}
	}
	return nil
}

// sameCount compares the length of a block that a peer announced with the length that this rank
// knows.
func (r *runner) sameCount(peer int, said uint64, known int, what string) error {
	if said == uint64(known) {
		return nil
	}
	e := fault.Peer(fault.Mismatch, peer, "%s has %d elements here, and rank %d says %d", what, known, peer, said)
	e.Proof = r.blame.Comparison.Proof(uint32(r.frame.fingerprint[0]), true)
	return e
}

// forget drops the program that was to follow, and the matrix of a large group.
func (x *exchange) forget() {
	x.after = nil
	if 8*cap(x.Matrix) > mostKeptTmp {
		x.Matrix = nil
	}
}

// isSystem reports whether an operation could not begin for a reason of this rank alone: the other
// ranks have begun it.
func isSystem(err error) bool {
	f, ok := err.(*fault.Error)
	return ok && f.Code == fault.System
}
