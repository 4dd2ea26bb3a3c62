package predicted

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// group returns a group of ranks, each with a core of its own, spread over hosts.
func group(t *testing.T, ranks, hosts int) *topo.Group {
	t.Helper()
	said := make([]topo.Rank, ranks)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: ranks, Cores: "0-63", Slot: 1 << 20, Transports: []string{"shm"},
			Place: topo.Place{Machine: strconv.Itoa(rank * hosts / ranks)}}
	}
	on, err := topo.Agree(said)
	require.NoError(t, err)
	if hosts < ranks {
		on = on.WithSlot(on.Room())
	}
	return on
}

// Every algorithm of the catalogue that runs on a group has a time, which is that of more bytes or
// more calls at least, and is not for ever that of a call alone.
func TestEveryAlgorithm(t *testing.T) {
	for _, hosts := range []int{1, 2, 4} {
		on := group(t, 4, hosts)
		p, err := New(on, cost.Usual())
		require.NoError(t, err)
		for _, coll := range dtype.Collectives() {
			for _, a := range algo.For(coll) {
				made, err := a.OnHosts(plan.Spec{Coll: coll, Ranks: 4}, on)
				if err != nil || made.Needs&plan.Gets != 0 && hosts > 1 {
					continue
				}
				few, err := p.Call(coll, a.Name, 1<<10, 4, 1)
				require.NoError(t, err, "%v/%s", coll, a.Name)
				require.Positive(t, few)
				if coll == dtype.Barrier {
					continue
				}
				more, err := p.Call(coll, a.Name, 8<<20, 4, 1)
				require.NoError(t, err)
				require.Greater(t, more, 2*few, "%v/%s on %d hosts", coll, a.Name, hosts)
				many, err := p.Call(coll, a.Name, 8<<20, 4, 0)
				require.NoError(t, err)
				require.InDelta(t, 1, many/more, 0.5, "calls that follow one another may overlap")
			}
		}
	}
}

// A call that exchanges lengths first takes longer by that.
func TestLengthsAreExchanged(t *testing.T) {
	on := group(t, 4, 4)
	p, err := New(on, cost.Usual())
	require.NoError(t, err)
	all, err := p.Call(dtype.AllToAll, "bruck", 1<<10, 4, 1)
	require.NoError(t, err)
	lengths, err := p.Call(dtype.AllGather, gathersLengths, 4*4*8, 8, 1)
	require.NoError(t, err)
	require.Greater(t, all, 2*lengths)
	linear, err := p.Call(dtype.AllToAll, "linear", 1<<10, 4, 1)
	require.NoError(t, err)
	require.Less(t, linear, all)
}

// An operation that does not fit the windows runs in pieces, which overlap.
func TestPiecesOfWindows(t *testing.T) {
	p, err := New(group(t, 2, 1), cost.Usual())
	require.NoError(t, err)
	one, err := p.Call(dtype.AllReduce, "one_shot_window", 1<<20, 4, 1)
	require.NoError(t, err)
	four, err := p.Call(dtype.AllReduce, "one_shot_window", 4<<20, 4, 1)
	require.NoError(t, err)
	require.InDelta(t, 4, four/one, 0.5)
}

func TestWrongCalls(t *testing.T) {
	p, err := New(group(t, 2, 1), cost.Usual())
	require.NoError(t, err)
	_, err = p.Call(dtype.AllReduce, "none", 64, 4, 1)
	require.ErrorContains(t, err, "none")
	apart, err := New(group(t, 2, 2), cost.Usual())
	require.NoError(t, err)
	_, err = apart.Call(dtype.AllReduce, "one_shot_window", 64, 4, 1)
	require.Error(t, err, "they share no memory")
	wrong := *cost.Usual()
	wrong.Network.Bandwidth = 0
	_, err = New(group(t, 2, 2), &wrong)
	require.ErrorContains(t, err, "bandwidth")
}

func TestSummarize(t *testing.T) {
	row := func(algorithm string, predicted float64, blocks ...float64) Row {
		return Row{Coll: dtype.AllReduce, Algorithm: algorithm, Ranks: 2, Hosts: 1, Bytes: 64, Blocks: blocks,
			Predicted: predicted}
	}
	require.Equal(t, Summary{Tau: 1}, Summarize(nil))
	s := Summarize([]Row{row("a", 1.1, 1, 1, 1), row("b", 1.9, 2, 2, 2), row("c", 6, 3, 4, 5)})
	require.Equal(t, 3, s.Rows)
	require.InDelta(t, 0.1, s.Median, 1e-9)
	require.InDelta(t, 0.5, s.Worst, 1e-9)
	require.InDelta(t, (0.1-0.05+0.5)/3, s.Mean, 1e-9)
	require.InDelta(t, 1, s.Tau, 1e-9)

	for _, test := range []struct {
		rows []Row
		tau  float64
	}{
		{[]Row{row("a", 2, 1, 1), row("b", 1, 2, 2)}, -1},
		{[]Row{row("a", 2, 1, 1), row("b", 1, 2, 2), row("c", 3, 3, 3)}, 1. / 3},
		{[]Row{row("a", 2, 1, 1), row("b", 2, 2, 2)}, 0},             // no order is predicted
		{[]Row{row("a", 2, 1, 3, 3), row("b", 1, 2, 4, 4)}, 1},       // blocks overlap: no order is measured
		{[]Row{row("a", 2, 1, 1), row("b", 1, 1.02, 1.02)}, 1},       // nearly alike
		{[]Row{row("a", 1, 1), {Ranks: 3, Blocks: []float64{2}}}, 1}, // not the same cell
	} {
		require.InDelta(t, test.tau, Summarize(test.rows).Tau, 1e-9)
	}
}
