package exec

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/mem"
)

// begin starts the operation at the head of the queue. It may refuse this operation only, before
// any data has moved and for a reason that every rank finds in its own call. An error for which
// isSystem holds ends the Comm instead.
func (r *runner) begin(op *Op) error {
	f, call := &r.frame, &op.call
	x, same := r.programs.kept.find(call) // Run and Post have found none, or it was posted behind others
	fits := x != nil && (same || x.fits(call, r.links.Rank))
	if fits && op.seq < x.until {
		f.op = op
		return r.start(&x.compiled, call, op.seq)
	}
	turn, low, err := r.turn(op)
	if err != nil {
		return err
	}
	if turn.Agree {
		return r.beginTimes(op)
	}
	if err := f.separate(op, low, r.links.Rank); err != nil {
		return err
	}
	if low.Counts {
		return r.beginCounts(op, low)
	}
	if turn.Trial {
		return r.beginTrial(op, low)
	}
	if x != nil && x.Low != low {
		r.programs.kept.drop()
		x = nil
	}
	var p *compiled
	if x != nil { // the blocks did not fit, or it was not to be used without asking
		p = &x.compiled
	} else if p, err = r.programs.program(low, call, &r.exchange.Lengths); err != nil {
		return err
	}
	p.until = turn.Until
	f.op = op
	return r.start(p, call, op.seq)
}

// try begins an operation that has no Op yet, and reports whether it has ended, as most simple
// operations do. If it has not ended, the caller must queue it.
func (r *runner) try(p *compiled, call *Call, seq uint64, w *waiter) (ended bool, err error) {
	f := &r.frame
	f.begin(p, seq, r.calls.History, r.windows.Begun)
	if !p.simple {
		return false, r.prepare(p, call)
	}
	s, err := r.runLane(f, p, p.Lanes[0], &f.lanes[0], 0, call, w)
	if s != finished || f.last > 0 {
		return false, err
	}
	r.made(p)
	f.prog = nil
	return true, nil
}

// made notes that the operation in flight has ended.
func (r *runner) made(p *compiled) {
	r.calls.Add(r.frame.fingerprint[0], p.what, p.digest, p.length, p.meets)
}

// finish forgets the operation in flight.
func (r *runner) finish() {
	r.frame.finish()
	r.exchange.forget()
}

// separate gives an operation that is in place a copy of its In, for a plan that needs In and Out
// to be disjoint.
func (f *frame) separate(op *Op, low *program.Lowered, rank int) error {
	inPlace, err := op.call.Overlap(rank)
	if err != nil || !inPlace || low.Alias&plan.InPlace != 0 {
		return err
	}
	size, total := op.call.Type.Size(), 0
	for _, b := range op.in {
		total += program.Aligned(b.Count * size)
	}
	if f.copied, err = mem.Alloc(total); err != nil {
		return fault.Wrap(fault.System, err, "no memory for a copy of the input")
	}
	at := addressOf(f.copied.Bytes())
	for i := range op.in {
		b := &op.in[i]
		bytes := b.Count * size
		if bytes == 0 {
			continue
		}
		copy(bytesAt(at, bytes), bytesAt(b.Ptr, bytes))
		b.Ptr = at
		at = plus(at, program.Aligned(bytes))
	}
	return nil
}
