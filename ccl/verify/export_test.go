package verify

import "github.com/goccl/goccl/ccl/plan"

// Shows reports whether some steps of a plan, or of several in sequence, show the failure that a counterexample is about.
func Shows(plans []*plan.Plan, credits bool, bad *Counterexample, steps []Line) bool {
	j, err := newJob(plans, Options{})
	if err != nil {
		return false
	}
	j.takeTurns(WithSlots(plans...))
	j.noCredits = !credits
	x, _ := j.run(bad.InPlace, true, &Report{})
	d := &reduction{x: x, bad: bad}
	d.number()
	var numbers []int
	for _, s := range steps {
		numbers = append(numbers, d.lanes[s.Rank][s.Lane]+s.Step+int(x.codes[s.Rank].starts[s.Lane][s.Op]))
	}
	return d.shows(numbers)
}

// SequenceWithoutCredits is Sequence without the rule that a slot is entered only after all ranks have left it.
func SequenceWithoutCredits(plans []*plan.Plan) error {
	return sequence(WithSlots(plans...), Options{}, false)
}

// WithSlots is operations whose windows lie in slots.
func WithSlots(plans ...*plan.Plan) []Operation {
	var ops []Operation
	for _, p := range plans {
		ops = append(ops, Operation{p, plan.WindowSlots})
	}
	return ops
}

// RepeatWithoutCredits is SequenceWithoutCredits of a plan that follows itself.
func RepeatWithoutCredits(p *plan.Plan, slots, times int) error {
	return sequence(Repeat(p, slots, times), Options{}, false)
}
