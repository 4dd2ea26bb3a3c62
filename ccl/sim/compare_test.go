package sim_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
)

// On 8 ranks recursive doubling costs 3(α+βm), the ring 14(α+βm/8).
func TestCompare(t *testing.T) {
	var plans []*plan.Plan
	for _, name := range []string{"ring", "recursive_doubling"} {
		a, err := algo.Find(dtype.AllReduce, name)
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 8})
		require.NoError(t, err)
		plans = append(plans, p)
	}
	simulator, err := sim.New(network.Uniform(8, network.Wire{Alpha: 1e-6, Bandwidth: 25e9}))
	require.NoError(t, err)
	results := 0
	rows, err := simulator.Compare(plans, []int64{1 << 10, 1 << 30}, sim.Options{ElementBytes: 4},
		func(*sim.Result) error { results++; return nil })
	require.NoError(t, err)
	require.Equal(t, 4, results)
	for i, wins := range []bool{false, true, true, false} {
		require.Equal(t, wins, rows[i].Wins, "%+v", rows[i])
		require.InEpsilon(t, rows[i].Formula, rows[i].Seconds, 1e-9)
		require.InEpsilon(t, 1.75*rows[i].AlgBW, rows[i].BusBW, 1e-9)
	}
	bad := errors.New("enough")
	_, err = simulator.Compare(plans, []int64{8}, sim.Options{ElementBytes: 4}, func(*sim.Result) error { return bad })
	require.ErrorIs(t, err, bad)
}

func TestWinners(t *testing.T) {
	row := func(bytes int64, algorithm string, wins bool) sim.Row {
		return sim.Row{Bytes: bytes, Algorithm: algorithm, Wins: wins}
	}
	rows := []sim.Row{
		row(1, "a", true), row(1, "b", true), row(1, "c", false),
		row(2, "a", true), row(2, "b", true), row(2, "c", false),
		row(4, "b", true), row(4, "a", false), row(8, "c", true),
		row(9, "c", true), row(9, "a", true), row(10, "a", true),
	}
	want := []sim.Range{{1, 4, []string{"b"}}, {8, 9, []string{"c"}}, {10, 10, []string{"a"}}}
	require.Equal(t, want, sim.Winners(rows))
}
