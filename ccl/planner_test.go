package ccl

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// Plans that are chosen without options must run on the links that a group has without options:
// planner.needs must find anything else.
func TestDefaultsNeedNothing(t *testing.T) {
	for _, determinism := range []int{2, 4} {
		for _, ranks := range []int{1, 2, 3, 8, 64, 5000} {
			if testing.Short() && ranks == 64 {
				continue
			}
			p := newPlanner(&GroupOptions{Determinism: determinism}, nil, topo.Spread(ranks, ranks))
			for _, coll := range dtype.Collectives() {
				for _, bytes := range []int64{0, 8, 64 << 10, 1 << 30} {
					made, err := p.Make(p.Choose(coll, bytes), plan.Spec{Coll: coll, Ranks: ranks})
					if err != nil {
						continue // refused with an error when it is called
					}
					if made.Needs&plan.Gets != 0 || made.Chans > exec.PlanChannels {
						t.Errorf("%v of %d bytes on %d ranks: %s needs windows or %d channels",
							coll, bytes, ranks, made.Name, made.Chans)
					}
				}
			}
		}
		p := newPlanner(&GroupOptions{Determinism: determinism}, nil, topo.Spread(8, 8))
		if channels, windows := p.needs(); channels != exec.PlanChannels || windows {
			t.Errorf("without options: %d channels, windows %v", channels, windows)
		}
	}
	opts := &GroupOptions{Algo: "all_reduce=two_shot_window"}
	if _, windows := newPlanner(opts, nil, topo.Spread(3, 1)).needs(); !windows {
		t.Error("two_shot_window needs windows")
	}
}

// What the network costs, if all ranks know it, decides between hosts, and nowhere else.
func TestCostsChoose(t *testing.T) {
	network := cost.Usual().Network
	network.Bandwidth = 125e6
	on := func(hosts, know int) *topo.Group {
		said := make([]topo.Rank, 6)
		for rank := range said {
			machine := strconv.Itoa(rank * hosts / len(said))
			said[rank] = topo.Rank{Number: rank, Size: len(said), Place: topo.Place{Machine: machine}}
			said[rank].Transports = []string{"shm"}
			if rank < know {
				said[rank].Network = &network
			}
		}
		g, err := topo.Agree(said)
		require.NoError(t, err)
		return g
	}
	for _, test := range []struct {
		group *topo.Group
		opts  GroupOptions
		want  string
	}{
		{on(6, 6), GroupOptions{Determinism: 2}, "double_binary_tree"},
		{on(6, 5), GroupOptions{Determinism: 2}, "binomial"}, // one rank does not know
		{on(1, 6), GroupOptions{Determinism: 2}, "binomial"}, // one host
		{on(6, 6), GroupOptions{Determinism: 2, Algo: "broadcast=flat"}, "flat"},
	} {
		p := newPlanner(&test.opts, nil, test.group)
		require.Equal(t, test.want, p.names[p.Choose(dtype.Broadcast, 64<<10)].Name)
	}
	// Reductions in rank order stay what they are, and levels have what is chosen among hosts.
	ordered := newPlanner(&GroupOptions{Determinism: 4}, nil, on(6, 6))
	require.Equal(t, "two_shot", ordered.names[ordered.Choose(dtype.AllReduce, 1<<20)].Name)
	levels := newPlanner(&GroupOptions{Determinism: 2}, nil, on(3, 6))
	require.Equal(t, "hierarchical.direct.ring", levels.names[levels.Choose(dtype.AllReduce, 1<<20)].Name)

	p := newPlanner(&GroupOptions{Determinism: 2}, nil, on(6, 6))
	p.Choose(dtype.Broadcast, 64<<10)
	require.Zero(t, testing.AllocsPerRun(100, func() { p.Choose(dtype.Broadcast, 64<<10) }))
}
