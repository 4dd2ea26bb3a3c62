package verify

import "github.com/goccl/goccl/ccl/plan"

// Shows reports whether some steps of a plan, or of several in sequence, show the failure that a
// counterexample is about.
func Shows(plans []*plan.Plan, credits bool, bad *Counterexample, steps []Line) bool {
	j, err := newJob(plans, Options{})
	if err != nil {
		return false
	}
	ops := WithSlots(plans...)
	if !credits {
		ops = withoutCredits(ops)
	}
	j.takeTurns(ops)
	x, _ := j.run(bad.InPlace, true, &Report{})
	d := &reduction{x: x, bad: bad}
	d.number()
	var numbers []int
	for _, s := range steps {
		numbers = append(numbers, d.lanes[s.Rank][s.Lane]+s.Step+int(x.codes[s.Rank].starts[s.Lane][s.Op]))
	}
	return d.shows(numbers)
}

// SequenceWithoutCredits is Sequence without the rule that a slot is entered only after all ranks
// have left it.
func SequenceWithoutCredits(plans []*plan.Plan) error {
	return Sequence(withoutCredits(WithSlots(plans...)), Options{})
}

// withoutCredits removes all waiting before a slot is entered.
func withoutCredits(ops []Operation) []Operation {
	for k := range ops {
		ops[k].Turns = len(ops)
	}
	return ops
}

// WithSlots returns operations whose windows are in slots.
func WithSlots(plans ...*plan.Plan) []Operation {
	var ops []Operation
	for _, p := range plans {
		ops = append(ops, Operation{Plan: p, Slots: plan.WindowSlots})
	}
	return ops
}

// RepeatWithoutCredits is SequenceWithoutCredits for a plan that follows itself.
func RepeatWithoutCredits(p *plan.Plan, slots, times int) error {
	return Sequence(withoutCredits(Repeat(p, slots, times)), Options{})
}
