package verify

import (
	"errors"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// Needed returns the level that a group with a setting of GOCCL_DETERMINISM requires of every plan;
// PerRank means any plan will do. Settings 3 and 4 require the order of the ranks: plans with
// different orders in one group would make the bits depend on the size.
func Needed(determinism int) Level {
	switch {
	case determinism > int(EveryRun):
		return RankOrder
	case determinism > int(PerRank):
		return EveryRun
	}
	return PerRank
}

// sequenceWork bounds the work of Accept on sequences: about a second.
const sequenceWork = 1 << 30

// Accept proves what a group with a setting of GOCCL_DETERMINISM requires of a plan that is not
// from the catalogue: that it is right, that its operations may follow each other, and that its
// results have the required level. If only the level is too low, the error is a fault.NotSupported
// caused by a *Counterexample.
func Accept(p *plan.Plan, determinism int, opts Options) (*Report, error) {
	report, err := prove(p, opts, determinism)
	if err != nil {
		return nil, err
	}
	if opts.Work == 0 || opts.Work > sequenceWork {
		opts.Work = sequenceWork
	}
	for _, slots := range []int{plan.WindowSlots, plan.WindowRecords} {
		times := slots + 1
		if p.Needs&(plan.Puts|plan.Gets) == 0 {
			times = 2 // no slot is used twice
		}
		// A sequence that exceeds this limit is right because the plan is, as the package comment
		// argues.
		if err := Sequence(Repeat(p, slots, times), opts); err != nil && !errors.Is(err, fault.NotSupported) {
			return nil, err
		}
	}
	return report, nil
}
