package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// TestWindowPlans verifies the plans over windows, and the needs and windows that they declare.
func TestWindowPlans(t *testing.T) {
	for _, test := range []struct {
		coll  dtype.Collective
		name  string
		needs plan.Need
		win   func(n int) int
	}{
		{dtype.Broadcast, "window", plan.Puts | plan.Gets, func(int) int { return 1 }},
		{dtype.Scatter, "window", plan.Puts | plan.Gets, func(n int) int { return n - 1 }},
		{dtype.Gather, "window", plan.Puts | plan.Gets, func(int) int { return 1 }},
		{dtype.AllGather, "window", plan.Puts | plan.Gets, func(int) int { return 1 }},
		{dtype.Reduce, "window", plan.Puts | plan.Gets, func(int) int { return 1 }},
		{dtype.ReduceScatter, "window", plan.Puts | plan.Gets, func(n int) int { return n }},
		{dtype.AllReduce, "one_shot", plan.Puts, func(n int) int { return n - 1 }},
		{dtype.AllReduce, "two_shot_window", plan.Puts | plan.Gets, func(n int) int { return n }},
	} {
		a, err := algo.Find(test.coll, test.name)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 17; n++ {
			roots := 1
			if test.coll.Rooted() {
				roots = n
			}
			for root := range roots {
				s := plan.Spec{Coll: test.coll, Ranks: n, Root: root}
				report := mustVerify(t, a, s)
				if test.coll.Reduces() && n > 1 && report.Determinism != 4 {
					t.Errorf("%v: %v, want the order of the ranks", s, report.Determinism)
				}
				p, err := a.Make(s)
				if err != nil {
					t.Fatal(err)
				}
				if n > 1 && (p.Needs != test.needs || p.Win != test.win(n)) {
					t.Errorf("%v: needs %b and a window of %d chunks", s, p.Needs, p.Win)
				}
			}
		}
	}
}

// TestWindowSequences verifies window plans that run one after the other, among them rooted plans
// and one with messages. All use the same windows and flags, whether chunks are in slots or, if
// short, in records.
func TestWindowSequences(t *testing.T) {
	const large, tiny = plan.WindowSlots, plan.WindowRecords
	for _, n := range []int{2, 3, 6} {
		var operations []verify.Operation
		for _, next := range []struct {
			coll  dtype.Collective
			name  string
			root  int
			slots int
		}{
			{dtype.AllReduce, "one_shot", 0, large}, {dtype.AllReduce, "two_shot_window", 0, tiny},
			{dtype.Broadcast, "window", n - 1, tiny}, {dtype.Broadcast, "window", 0, large},
			{dtype.Broadcast, "window", 0, tiny}, {dtype.AllReduce, "hierarchical", 0, large},
			{dtype.ReduceScatter, "window", 0, tiny}, {dtype.AllGather, "window", 0, large},
			{dtype.Reduce, "window", n - 1, tiny}, {dtype.Scatter, "window", 1, large},
			{dtype.Gather, "window", 0, large}, {dtype.Gather, "window", 1, tiny},
			{dtype.Reduce, "window", 1, large}, {dtype.Scatter, "window", 0, tiny},
			{dtype.Reduce, "window", 0, large},
			{dtype.AllReduce, "one_shot", 0, large}, {dtype.AllReduce, "two_shot_window", 0, large},
			{dtype.AllReduce, "two_shot_window", 0, tiny},
		} {
			a, err := algo.Find(next.coll, next.name)
			if err != nil {
				t.Fatal(err)
			}
			p, err := a.Make(plan.Spec{Coll: next.coll, Ranks: n, Root: next.root})
			if err != nil {
				t.Fatal(err)
			}
			operations = append(operations, verify.Operation{Plan: p, Slots: next.slots})
		}
		if err := verify.Sequence(operations, verify.Options{}); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
