package exec

import (
	"math"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
)

// never is Turn.Until of calls that need not be asked about again.
const never = math.MaxUint64

// turn returns how an operation runs, and its plan unless the ranks must first exchange times.
// Pieces of a call of a device are no trials: several are in flight at once.
func (r *runner) turn(op *Op) (t Turn, low *program.Lowered, err error) {
	s, call := &r.programs, &op.call
	if r.trials == nil || call.Whole != 0 {
		t.Until = never
		low, err = s.lowered(s.planner, call.Coll, call.Root, call.Bytes())
		return t, low, planError(err)
	}
	for {
		if t = r.trials.Turn(call.Coll, call.Bytes(), op.seq); t.Agree {
			return t, nil, nil
		}
		low, err = s.lowerAs(s.planner, call.Coll, t.Algorithm, call.Root)
		if !t.Trial || err == nil && !low.Counts || !r.trials.Drop() {
			return t, low, planError(err)
		}
	}
}

func planError(err error) error {
	if _, ok := err.(*fault.Error); ok || err == nil {
		return err
	}
	return fault.Wrap(fault.Internal, err, "no plan")
}

// beginTrial begins an operation by a program that is not kept, and looks at the clock.
func (r *runner) beginTrial(op *Op, low *program.Lowered) error {
	p := &r.programs.scratch
	if err := r.programs.compile(p, low, &op.call, &r.exchange.Lengths, 0); err != nil {
		return err
	}
	r.frame.op = op
	r.timed, r.began = true, now()
	return r.start(p, &op.call, op.seq)
}

// endTrial notes how long a trial took.
func (r *runner) endTrial(s status) {
	r.timed = false
	if s == finished {
		r.trials.Took(uint64(now() - r.began))
	}
}

// beginTimes begins the exchange of times.
func (r *runner) beginTimes(op *Op) error {
	x := &r.exchange
	x.after, x.own = nil, append(x.own[:0], r.trials.Times()...)
	r.began = now()
	return r.beginExchange(op, 0)
}

// timesCame ends that exchange, and begins the operation.
func (r *runner) timesCame(f *frame) (status, error) {
	x, op := &r.exchange, f.op
	largest := x.own
	for i, t := range x.Matrix {
		largest[i%x.Row] = max(largest[i%x.Row], t)
	}
	f.counting = false
	r.trials.Agree(largest, uint64(now()-r.began))
	turn, low, err := r.turn(op)
	if err != nil {
		return refused, err
	}
	if err := f.separate(op, low, r.links.Rank); err != nil {
		return failed, err
	}
	if turn.Trial {
		return failed, r.beginTrial(op, low)
	}
	p := &r.programs.scratch
	if err = r.programs.compile(p, low, &op.call, &r.exchange.Lengths, 0); err == nil {
		err = r.start(p, &op.call, op.seq)
	}
	return failed, err
}

// exchanged says what the ranks tell each other before the operation in flight begins.
func (r *runner) exchanged() string {
	switch {
	case !r.frame.counting:
		return ""
	case r.exchange.after == nil:
		return "the times of trials"
	}
	return "the lengths of blocks"
}
