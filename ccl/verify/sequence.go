package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// MaxSequence is the maximum number of plans in a sequence.
const MaxSequence = 64

// Operation is one operation of a sequence: a plan, and the number of slots for its windows,
// plan.WindowSlots or plan.WindowRecords. Slots is 0 if no peer reads the windows, so that each
// operation has its own.
type Operation struct {
	Plan  *plan.Plan
	Slots int
	// Turns is how many operations over windows may be in flight: a rank enters when all ranks have
	// left the operation that many before. 0 means Slots.
	Turns int
	// Ends returns where a rank's program enters, leaves and ends. If Ends is nil, the rank enters
	// with its first access to a window, leaves after its last step, and has then ended.
	Ends func(rank int) Ends
	// Records is the number of records for signals, which operations over windows use in turn; 0 if
	// the signals of this operation are in no record.
	Records int
}

// Ends describes where a rank's program enters its slot, where it leaves it, and when it has ended.
// Lanes that are not listed have all their steps before entering, and none before leaving.
type Ends struct {
	Enter []int // by lane, the first step behind the entry
	Leave []int // by lane, the number of steps before leaving
	Never bool  // the rank does not leave
	Drain bool  // if it lends memory of its caller, the rank ends only when all ranks have left
}

// Repeat returns a plan several times in a row, with the same number of slots.
func Repeat(p *plan.Plan, slots, times int) []Operation {
	return slices.Repeat([]Operation{{Plan: p, Slots: slots}}, times)
}

// Sequence proves that operations of the same ranks may follow each other in one group: each rank
// begins the next operation when it has ended its part of the last one, so that several are in
// flight. They share channels and flags, and windows in slots that they use in turn; package plan
// states the rule ("Operations in sequence"). If Sequence returns nil, each plan is right
// individually, too. Window chunks stand for memory of the caller if a plan allows it and its Ends
// are known.
func Sequence(ops []Operation, opts Options) error {
	if len(ops) == 0 || len(ops) > MaxSequence {
		return fault.New(fault.Invalid, "a sequence of %d plans; want 1 to %d", len(ops), MaxSequence)
	}
	inPlace, lend := true, false
	plans := make([]*plan.Plan, len(ops))
	for k, o := range ops {
		if o.Plan.Spec.Ranks != ops[0].Plan.Spec.Ranks {
			return fault.New(fault.Invalid, "plan %d of a sequence is for %d ranks, the first one for %d",
				k, o.Plan.Spec.Ranks, ops[0].Plan.Spec.Ranks)
		}
		if o.Slots < 0 || o.Turns < 0 || o.Records < 0 {
			return fault.New(fault.Invalid,
				"plan %d of a sequence has %d slots, %d turns and %d records; want none or more",
				k, o.Slots, o.Turns, o.Records)
		}
		inPlace = inPlace && o.Plan.Alias&plan.InPlace != 0
		lend = lend || o.lends()
		plans[k] = o.Plan
	}
	j, err := newJob(plans, opts)
	if err != nil {
		return err
	}
	j.takeTurns(ops)
	for _, j.lend = range []bool{false, true} {
		for _, same := range []bool{false, true} {
			if j.lend && !lend || same && !inPlace {
				continue
			}
			if err := j.verify(same, &Report{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// lends reports whether chunks of the operation's windows may stand for memory of the caller.
func (o *Operation) lends() bool { return o.Ends != nil && o.Plan.Alias&plan.Lend != 0 }

// turn describes the slot of an operation in a sequence. Operations with the same number of slots
// share a slot if their turns differ by a multiple of that number.
type turn struct {
	slots   int
	at      int    // number of earlier operations with windows
	frees   int    // the operation that all ranks must have left before this one enters; -1 for none
	records int    // for its signals
	lends   bool   // its windows may stand for memory of the caller
	ends    []Ends // by rank, or nil
}

// takeTurns assigns slots to the operations that use windows, and records for each step on which
// side of entering and leaving it is.
func (j *job) takeTurns(ops []Operation) {
	j.turns = make([]turn, len(ops))
	var with []int // operations with windows
	for k := range ops {
		o := &ops[k]
		t := turn{slots: o.Slots, at: len(with), frees: -1, records: o.Records, lends: o.lends()}
		if before := len(with) - cmp.Or(o.Turns, o.Slots); o.Slots > 0 && before >= 0 {
			t.frees = with[before]
		}
		if o.Slots > 0 && (o.Plan.Needs&(plan.Puts|plan.Gets) != 0 || o.Ends != nil) {
			with = append(with, k)
		}
		if o.Ends != nil {
			t.ends = make([]Ends, len(j.codes))
			for r := range t.ends {
				t.ends[r] = o.Ends(r)
			}
		}
		j.turns[k] = t
	}
	for r := range j.codes {
		c := &j.codes[r]
		for l, lane := range c.lanes {
			for i := range lane {
				a := &lane[i]
				a.enters, a.inside = a.window, true
				if ends := j.turns[a.op].ends; ends != nil {
					e, at := &ends[r], i-int(c.starts[l][a.op])
					a.enters = l < len(e.Enter) && at >= e.Enter[l]
					a.inside = l < len(e.Leave) && at < e.Leave[l]
				}
			}
		}
	}
}

// share reports whether two operations of a sequence use the same slot.
func (j *job) share(k, op int) bool {
	a, b := &j.turns[k], &j.turns[op]
	return k != op && a.slots > 0 && a.slots == b.slots && (a.at-b.at)%a.slots == 0
}

// shareRecord reports whether two operations of a sequence have their signals in the same record.
func (j *job) shareRecord(k, op int) bool {
	a, b := &j.turns[k], &j.turns[op]
	return k != op && a.records > 0 && a.records == b.records && (a.at-b.at)%a.records == 0
}

// credit counts the ranks that have left a plan of a sequence, and those that have ended it; clock
// is what is known once all have left, and ends what is known once all have ended.
type credit struct {
	ranks, ended int
	clock, ends  clock
}

// past reports whether l knows that all ranks have ended a plan. Then it need not check their
// accesses in it.
func (x *execution) past(l *lane, op int) bool {
	if l.past[op] || x.credits[op].ended < len(x.ranks) {
		return l.past[op]
	}
	for id, end := range x.credits[op].ends {
		if end > l.clock[id] {
			return false
		}
	}
	l.past[op] = true
	return true
}

// frees returns the plan that all ranks must have left before a step runs, since that plan used the
// same slot; -1 for none.
func (x *execution) frees(a *action) int {
	if !a.enters || x.turns == nil {
		return -1
	}
	return x.turns[a.op].frees
}

// entered reports whether the step of a rank may run as far as its slot and the earlier plans of
// the rank are concerned.
func (x *execution) entered(rk *rank, a *action) bool {
	before := x.frees(a)
	return (x.credits == nil || rk.op == int(a.op)) && (before < 0 || x.credits[before].ranks == len(x.ranks))
}

// enter adds to the clock of l that all ranks have left the plan that used its slot before.
func (x *execution) enter(l *lane, a *action) {
	if before := x.frees(a); before >= 0 {
		x.learn(l, x.credits[before].clock)
	}
}

// learn joins known into the clock of a lane without counting a message.
func (x *execution) learn(l *lane, known clock) {
	rounds := *l.clock.rounds()
	l.clock.join(known)
	*l.clock.rounds() = rounds
}

// pass records that l has executed a step of a plan of a sequence.
func (x *execution) pass(l *lane, a *action) {
	rk, op := &x.ranks[l.rank], int(a.op)
	rk.left[op]--
	if a.inside {
		rk.inside[op]--
		if next := l.pc; next == len(l.code) || int(l.code[next].op) != op || !l.code[next].inside {
			x.credits[op].clock.join(l.clock)
		}
	}
	x.leave(rk)
}

// leave records that a rank has left the slot of the plan it is in, once it has, and moves the rank
// on to the next plan that it has steps of.
func (x *execution) leave(rk *rank) {
	for rk.op < len(x.plans) {
		op := rk.op
		c, ends := &x.credits[op], Ends{}
		if all := x.turns[op].ends; all != nil {
			ends = all[rk.mem[op].rank]
		}
		if !rk.gone && rk.inside[op] == 0 && !ends.Never {
			rk.gone = true
			if c.ranks++; rk.outside[op] {
				c.clock.join(x.known(rk))
			}
			if c.ranks == len(x.ranks) {
				x.allLeft()
				continue // allLeft may have moved this rank on
			}
		}
		drains := ends.Drain && x.lend
		if rk.left[op] > 0 || drains && c.ranks < len(x.ranks) {
			return
		}
		x.finish(rk, op, drains)
	}
}

// allLeft resumes everything that waits for all ranks to have left a plan.
func (x *execution) allLeft() {
	for r := range x.ranks {
		x.leave(&x.ranks[r])
	}
	for _, l := range x.byID {
		if !l.running {
			x.enqueue(l)
		}
	}
}

// finish ends a plan at a rank. From then on the caller may write the memory that the rank has
// lent.
func (x *execution) finish(rk *rank, op int, drained bool) {
	rk.op++
	rk.gone = false
	x.credits[op].ended++
	for i := range rk.lanes {
		l := &rk.lanes[i]
		x.credits[op].ends[l.id] = *l.self()
		if drained {
			x.learn(l, x.credits[op].clock)
		}
		if !l.running {
			x.enqueue(l)
		}
	}
	if x.plans[op].Spec.Coll == dtype.Barrier {
		rk.knew[op] = x.known(rk)
	}
	m := rk.mem[op]
	for i := range m.lent {
		loan := &m.lent[i]
		if loan.ref.N == 0 || loan.place < 0 || x.returned != nil {
			continue
		}
		if reader, ok := x.conflict(&rk.lanes[0], m, loan.place, true, false); ok {
			text := fmt.Sprintf("rank %d may end, and its caller write %v, while %s reads that through the window",
				m.rank, loan.ref, x.nameOf(reader))
			x.returned = x.counterexample(op, Race, text, x.whereOf(reader))
		}
	}
}

// laggard returns a lane that keeps the step of l from entering its slot, or nil if there is none.
func (x *execution) laggard(l *lane) *lane {
	a := &l.code[l.pc]
	if x.entered(&x.ranks[l.rank], a) {
		return nil
	}
	before := x.frees(a)
	if own := x.ranks[l.rank].op; own < int(a.op) {
		// The rank has not ended its own plan, and waits for others to leave.
		before = max(before, own)
	}
	for r := range x.ranks {
		if rk := &x.ranks[r]; rk.op < before || rk.op == before && !rk.gone {
			for i := range rk.lanes {
				if other := &rk.lanes[i]; other.pc < len(other.code) && int(other.code[other.pc].op) <= before {
					return other
				}
			}
		}
	}
	return nil
}

// touch records that the step of l accesses a window, and checks that this access is ordered with
// all accesses of other plans to the same slot: the layout of the slot differs between plans, and
// its contents do not survive a plan.
func (x *execution) touch(l *lane, m *memory, r ref, i int) *Counterexample {
	op := int(l.code[l.pc].op)
	for k := range x.plans {
		if !x.share(k, op) || x.past(l, k) {
			continue
		}
		for id, end := range x.ranks[m.rank].mem[k].touched {
			if id != l.id && end > l.clock[id-l.offset] {
				verb, otherVerb := fmt.Sprintf("(plan %d) accesses", op),
					fmt.Sprintf("(plan %d) accesses the same slot in", k)
				if bad := x.race(l, r, i, stamp{id, end}, verb, otherVerb); bad != nil {
					return bad
				}
			}
		}
	}
	m.touched[l.id] = ended(l.pc)
	return nil
}

// touchRecord records that the step of l, a signal or a wait, accesses the record of a rank, and
// checks that this is ordered with all accesses of other plans to the same record.
func (x *execution) touchRecord(l *lane, a *action, rank int) *Counterexample {
	op := int(a.op)
	if x.turns == nil || x.turns[op].records == 0 {
		return nil
	}
	for k := range x.plans {
		if !x.shareRecord(k, op) || x.past(l, k) {
			continue
		}
		for id, end := range x.ranks[rank].mem[k].recorded {
			if id != l.id && end > l.clock[id-l.offset] {
				other := stamp{id, end}
				text := fmt.Sprintf("%s uses the record of rank %d, which %s uses too, and nothing orders the two",
					x.name(l), rank, x.nameOf(other))
				if bad := x.disorder(l, other, x.edges(l, other), Race, text); bad != nil {
					return bad
				}
			}
		}
	}
	x.ranks[rank].mem[op].recorded[l.id] = ended(l.pc)
	return nil
}
