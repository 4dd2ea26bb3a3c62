package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// TestManyStops checks that the first wrong case in their order is reported, and that no more cases
// are proven.
func TestManyStops(t *testing.T) {
	ring, err := algo.Find(dtype.AllGather, "ring")
	require.NoError(t, err)
	only := func(s plan.Spec) (*plan.Plan, error) {
		if s.Ranks > 1 {
			return nil, fault.New(fault.Invalid, "not for %d ranks", s.Ranks)
		}
		return ring.Make(s)
	}
	var cases []verify.Case
	for n := 1; n <= 3; n++ {
		cases = append(cases, verify.Case{Spec: plan.Spec{Coll: dtype.AllGather, Ranks: n}, Make: only, Name: "ring"})
	}
	require.ErrorContains(t, verify.Many(cases, 1), "not for 3 ranks")
	require.Zero(t, cases[0].Time)

	sum, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	low := []verify.Case{{Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 3}, Make: sum.Make, Name: "ring", Declared: 4}}
	require.ErrorContains(t, verify.Many(low, 2), "determinism is level 2, but the algorithm declares level 4")
	low[0].Declared = 2
	require.NoError(t, verify.Many(low, 2))
	require.EqualValues(t, 2, low[0].Level)
	require.Positive(t, low[0].Time)
}
