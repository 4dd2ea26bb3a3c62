package draw_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// windowRounds holds the rounds of the plans with windows. A report of verify has more: it counts
// every signal and every wait, which take a column of a picture only if nothing else is in it.
var windowRounds = map[string]func(ranks int) int{
	"broadcast/window":           func(int) int { return 2 },       // signals; all ranks read the root's window
	"scatter/window":             func(int) int { return 2 },       // signals; one get of each rank
	"gather/window":              func(n int) int { return n },     // signals; one get after the other
	"all_gather/window":          func(n int) int { return n },     // signals; one get after the other
	"reduce/window":              func(int) int { return 2 },       // signals; one get from all ranks
	"reduce_scatter/window":      func(int) int { return 2 },       // signals; one get from all ranks
	"all_reduce/one_shot":        func(n int) int { return n - 1 }, // one packet after the other
	"all_reduce/one_shot_window": func(int) int { return 2 },       // signals; one get from all ranks
	"all_reduce/two_shot_window": func(n int) int { return n + 2 }, // as reduce_scatter, then as all_gather
	"all_to_all/window":          func(n int) int { return n },     // as all_gather
	"barrier/flags":              func(int) int { return 1 },       // signals
}

// same compares a plan's trace with the report of verify.
func same(t *testing.T, p *plan.Plan) {
	t.Helper()
	name := fmt.Sprintf("%v/%s", p.Spec.Coll, p.Name)
	report, err := verify.Plan(p, verify.Options{})
	require.NoError(t, err, "%s %v", name, p.Spec)
	trace, err := draw.Run(p)
	require.NoError(t, err, "%s %v", name, p.Spec)
	for r, load := range report.Ranks {
		require.Equal(t, load.Sent, trace.Sent[r], "%s %v: chunks sent by rank %d", name, p.Spec, r)
	}
	if p.Needs&(plan.Puts|plan.Gets) == 0 {
		require.Equal(t, report.Rounds, trace.Rounds, "%s %v: rounds", name, p.Spec)
		return
	}
	require.Contains(t, windowRounds, name)
	require.Equal(t, windowRounds[name](p.Spec.Ranks), trace.Rounds, "%s %v: rounds", name, p.Spec)
	require.LessOrEqual(t, trace.Rounds, report.Rounds, "%s %v: rounds of verify", name, p.Spec)
}

// TestRoundsAndBytesAreThoseOfVerify checks that a picture has the rounds, and states the bytes,
// that verify finds.
func TestRoundsAndBytesAreThoseOfVerify(t *testing.T) {
	for _, a := range algo.All() {
		for ranks := 2; ranks <= 9; ranks++ {
			roots := []int{0}
			if a.Coll.Rooted() {
				roots = []int{0, 1, ranks - 1}
			}
			for _, root := range roots {
				p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks, Root: root})
				require.NoError(t, err)
				same(t, p)
			}
		}
		for _, shape := range []plan.Shape{{2, 3}, {3, 2}, {4, 2}, {2, 2, 2}} {
			p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: shape[0] * shape[1] * max(shape[2], 1), Shape: shape})
			require.NoError(t, err)
			same(t, p)
		}
	}
	for _, name := range []string{"hierarchical.ring.recursive_doubling", "hierarchical.pairwise.rabenseifner"} {
		a, err := algo.Find(dtype.AllReduce, name)
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 8, Shape: plan.Shape{4, 2}})
		require.NoError(t, err)
		same(t, p)
	}
}
