package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// slots is how many operations of a group use windows before the first slot comes round again.
const slots = 2

// MaxSequence is the most plans in a sequence.
const MaxSequence = 64

// Sequence proves that plans for the same ranks may follow each other in one group: each rank begins with the next one when it
// has ended its part of the last one, so that several are in flight. They share channels and flags, and windows in slots that
// alternate; package plan states the rule ("Operations in sequence"). Each plan is right by itself, too, if Sequence returns nil.
func Sequence(plans []*plan.Plan, opts Options) error { return sequence(plans, opts, true) }

// sequence is Sequence, with or without the rule that a slot is entered only after all ranks left it.
func sequence(plans []*plan.Plan, opts Options, credits bool) error {
	if len(plans) == 0 || len(plans) > MaxSequence {
		return fault.New(fault.Invalid, "a sequence of %d plans; want 1 to %d", len(plans), MaxSequence)
	}
	inPlace := true
	for k, p := range plans {
		if p.Spec.Ranks != plans[0].Spec.Ranks {
			return fault.New(fault.Invalid, "plan %d of a sequence is for %d ranks, the first one for %d", k, p.Spec.Ranks, plans[0].Spec.Ranks)
		}
		inPlace = inPlace && p.Alias&plan.InPlace != 0
	}
	j, err := newJob(plans, opts)
	if err != nil {
		return err
	}
	j.noCredits = !credits
	if err := j.verify(false, &Report{}); err != nil || !inPlace {
		return err
	}
	return j.verify(true, &Report{})
}

// credit counts the ranks that have left a plan of a sequence; clock is what is known once all have.
type credit struct {
	ranks int
	clock clock
}

// entered reports whether the step may run: a step that accesses a window needs all ranks to have left the plan that used it before.
func (x *execution) entered(a *action) bool {
	return !a.window || int(a.op) < slots || x.noCredits || x.credits[a.op-slots].ranks == len(x.ranks)
}

// enter makes the step of l know that all ranks have left the plan that used its windows before.
func (x *execution) enter(l *lane, a *action) {
	if a.window && int(a.op) >= slots && !x.noCredits {
		rounds := *l.clock.rounds()
		l.clock.join(x.credits[a.op-slots].clock)
		*l.clock.rounds() = rounds
	}
}

// leave moves a rank on to the next plan that it has steps of.
func (x *execution) leave(rk *rank) {
	for ; rk.op < len(x.plans) && rk.left[rk.op] == 0; rk.op++ {
		c := &x.credits[rk.op]
		if c.clock == nil {
			c.clock = make(clock, x.clocks.size)
		}
		for i := range rk.lanes {
			c.clock.join(rk.lanes[i].clock)
		}
		if x.plans[rk.op].Spec.Coll == dtype.Barrier {
			rk.knew[rk.op] = x.known(rk)
		}
		if c.ranks++; c.ranks < len(x.ranks) {
			continue
		}
		for _, l := range x.byID {
			if !l.running {
				x.enqueue(l)
			}
		}
	}
}

// laggard is a lane that keeps the step of l from entering its slot, nil if nothing does.
func (x *execution) laggard(l *lane) *lane {
	a := &l.code[l.pc]
	if x.entered(a) {
		return nil
	}
	for r := range x.ranks {
		if rk := &x.ranks[r]; rk.op <= int(a.op)-slots {
			for i := range rk.lanes {
				if other := &rk.lanes[i]; other.pc < len(other.code) && int(other.code[other.pc].op) <= int(a.op)-slots {
					return other
				}
			}
		}
	}
	return nil
}

// touch notes that the step of l accesses a window, and checks that this is ordered with all accesses of other plans to
// the same slot: what lies where differs between plans, and nothing stays in it.
func (x *execution) touch(l *lane, m *memory, r ref, i int) *Counterexample {
	op := int(l.code[l.pc].op)
	for k := op % slots; k < len(x.plans); k += slots {
		if k == op {
			continue
		}
		for id, end := range x.ranks[m.rank].mem[k].touched {
			if id != l.id && end > l.clock[id-l.offset] {
				if bad := x.race(l, r, i, stamp{id, end}, fmt.Sprintf("(plan %d) accesses", op), fmt.Sprintf("(plan %d) accesses the same slot in", k)); bad != nil {
					return bad
				}
			}
		}
	}
	m.touched[l.id] = ended(l.pc)
	return nil
}
