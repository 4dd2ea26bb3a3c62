package verify

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// MaxSequence is the most plans in a sequence.
const MaxSequence = 64

// Operation is one of a sequence: a plan, and how many slots there are for its windows, plan.WindowSlots or
// plan.WindowNotices.
type Operation struct {
	Plan  *plan.Plan
	Slots int
}

// Repeat is a plan several times in a row, with the same number of slots.
func Repeat(p *plan.Plan, slots, times int) []Operation {
	ops := make([]Operation, times)
	for k := range ops {
		ops[k] = Operation{p, slots}
	}
	return ops
}

// Sequence proves that operations of the same ranks may follow each other in one group: each rank begins with the
// next one when it has ended its part of the last one, so that several are in flight. They share channels and flags,
// and windows in slots that they use in turn; package plan states the rule ("Operations in sequence"). Each plan is
// right by itself, too, if Sequence returns nil.
func Sequence(ops []Operation, opts Options) error { return sequence(ops, opts, true) }

// sequence is Sequence, with or without the rule that a slot is entered only after all ranks left it.
func sequence(ops []Operation, opts Options, credits bool) error {
	if len(ops) == 0 || len(ops) > MaxSequence {
		return fault.New(fault.Invalid, "a sequence of %d plans; want 1 to %d", len(ops), MaxSequence)
	}
	inPlace := true
	plans := make([]*plan.Plan, len(ops))
	for k, o := range ops {
		if o.Plan.Spec.Ranks != ops[0].Plan.Spec.Ranks {
			return fault.New(fault.Invalid, "plan %d of a sequence is for %d ranks, the first one for %d", k, o.Plan.Spec.Ranks,
				ops[0].Plan.Spec.Ranks)
		}
		if o.Slots < 1 {
			return fault.New(fault.Invalid, "plan %d of a sequence has %d slots for its windows; want 1 or more", k, o.Slots)
		}
		inPlace = inPlace && o.Plan.Alias&plan.InPlace != 0
		plans[k] = o.Plan
	}
	j, err := newJob(plans, opts)
	if err != nil {
		return err
	}
	j.takeTurns(ops)
	j.noCredits = !credits
	if err := j.verify(false, &Report{}); err != nil || !inPlace {
		return err
	}
	return j.verify(true, &Report{})
}

// turn is which slot an operation of a sequence uses: that of all with as many slots whose turn is a multiple of
// these away.
type turn struct {
	slots int
	at    int // how many operations with windows come before
	frees int // the operation that all ranks must have left before; -1 for none
}

// takeTurns gives slots to the operations that use windows.
func (j *job) takeTurns(ops []Operation) {
	j.turns = make([]turn, len(ops))
	var with []int // operations with windows
	for k, o := range ops {
		j.turns[k] = turn{o.Slots, len(with), -1}
		if before := len(with) - o.Slots; before >= 0 {
			j.turns[k].frees = with[before]
		}
		if o.Plan.Needs&(plan.Puts|plan.Gets) != 0 {
			with = append(with, k)
		}
	}
}

// share reports whether two operations of a sequence use the same slot.
func (j *job) share(k, op int) bool {
	a, b := j.turns[k], j.turns[op]
	return k != op && a.slots == b.slots && (a.at-b.at)%a.slots == 0
}

// credit counts the ranks that have left a plan of a sequence; clock is what is known once all have.
type credit struct {
	ranks int
	clock clock
}

// frees is the plan that all ranks must have left before a step runs, since it accesses a window that was used there;
// -1 for none.
func (x *execution) frees(a *action) int {
	if !a.window || x.turns == nil || x.noCredits {
		return -1
	}
	return x.turns[a.op].frees
}

// entered reports whether the step may run, as far as its slot is concerned.
func (x *execution) entered(a *action) bool {
	before := x.frees(a)
	return before < 0 || x.credits[before].ranks == len(x.ranks)
}

// enter makes the step of l know that all ranks have left the plan that used its windows before.
func (x *execution) enter(l *lane, a *action) {
	if before := x.frees(a); before >= 0 {
		rounds := *l.clock.rounds()
		l.clock.join(x.credits[before].clock)
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
	before := x.frees(a)
	for r := range x.ranks {
		if rk := &x.ranks[r]; rk.op <= before {
			for i := range rk.lanes {
				if other := &rk.lanes[i]; other.pc < len(other.code) && int(other.code[other.pc].op) <= before {
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
	for k := range x.plans {
		if !x.share(k, op) {
			continue
		}
		for id, end := range x.ranks[m.rank].mem[k].touched {
			if id != l.id && end > l.clock[id-l.offset] {
				verb, otherVerb := fmt.Sprintf("(plan %d) accesses", op), fmt.Sprintf("(plan %d) accesses the same slot in", k)
				if bad := x.race(l, r, i, stamp{id, end}, verb, otherVerb); bad != nil {
					return bad
				}
			}
		}
	}
	m.touched[l.id] = ended(l.pc)
	return nil
}
