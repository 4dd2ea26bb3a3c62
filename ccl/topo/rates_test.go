package topo_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
)

// The slowest machine counts. Of a machine one rank must know, and what cannot be counts as
// nothing.
func TestRatesOfGroup(t *testing.T) {
	a, b := &topo.Rates{One: 10, All: 50, Handover: 1e-7}, &topo.Rates{One: 20, All: 20}
	on := func(machine string, r *topo.Rates) topo.Rank {
		return topo.Rank{Place: topo.Place{Machine: machine}, Rates: r}
	}
	slowest := topo.Rates{One: 10, All: 20, Handover: 1e-7}
	for _, test := range []struct {
		name  string
		ranks []topo.Rank
		want  topo.Rates
	}{
		{"two machines", []topo.Rank{on("m", a), on("n", b)}, slowest},
		{"in the other order", []topo.Rank{on("n", b), on("m", a)}, slowest},
		{"one rank of each knows", []topo.Rank{on("m", nil), on("n", b), on("m", a), on("n", nil)}, slowest},
		{"ranks of a machine differ", []topo.Rank{on("m", a), on("m", b)}, slowest},
		{"of one machine nobody knows", []topo.Rank{on("m", a), on("n", nil)}, topo.Rates{}},
		{"nobody knows", []topo.Rank{on("m", nil)}, topo.Rates{}},
		{"strange ones", []topo.Rank{on("m", a), on("m", &topo.Rates{One: -1, All: 5}),
			on("m", &topo.Rates{One: 1, All: math.Inf(1)}), on("m", &topo.Rates{One: 3, All: 2}),
			on("m", &topo.Rates{One: 3, All: 3, Handover: -1})}, *a},
	} {
		g, err := topo.Agree(numbered(test.ranks...))
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, g.Rates(), test.name)
	}
	require.Equal(t, "not measured", topo.Rates{}.String())
	require.Equal(t, "one core copies 12 GB/s, all 60.5, a core sees a write of another after 60 ns",
		topo.Rates{One: 12e9, All: 60.5e9, Handover: 60e-9}.String())
	require.Equal(t, "one core copies 1 GB/s, all 1", topo.Rates{One: 1e9, All: 1e9}.String())
}

// All ranks refuse a network of fewer hosts than the group has.
func TestDescribedHosts(t *testing.T) {
	said := numbered(topo.Rank{}, topo.Rank{Described: 2}, topo.Rank{Described: 3})
	_, err := topo.Agree(said)
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "(rank 1): GOCCL_TOPO: the network has 2 ranks, this group has 3 hosts")
	said[1].Described = 64
	_, err = topo.Agree(said)
	require.NoError(t, err)
}
