package algo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/verify"
)

// layouts are, by rank, the hosts of groups: hosts of equal and of unequal size, with consecutive
// ranks, in turn, and mixed.
var layouts = [][]int{
	{0, 0, 1, 1},
	{0, 1, 0, 1},
	{0, 1, 1, 0},
	{0, 0, 0, 1, 1, 1},
	{0, 1, 0, 1, 1, 0},
	{0, 1, 2, 0, 1, 2},
	{0, 0, 1, 1, 1, 1, 0, 0},
	{0, 0, 1},
	{0, 1, 1},
	{0, 0, 0, 1},
	{0, 1, 0, 0, 0},
	{0, 0, 0, 0, 0, 1, 1},
	{0, 1, 2, 2, 0, 0, 1, 2, 2, 2},
}

// TestOnHosts proves the plans of all algorithms with levels on all layouts. Where hosts are the
// grid, ranks send to ranks of their host, and one rank of each host sends to one of another.
func TestOnHosts(t *testing.T) {
	var all []algo.Algorithm
	for _, a := range algo.All() {
		if a.Grid != nil {
			all = append(all, a)
		}
	}
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		all = append(all, algo.Variants(coll, 2)...)
	}
	for _, a := range all {
		for _, host := range layouts {
			ranks, group := len(host), topo.OnHosts(host...)
			name := fmt.Sprintf("%v %s on %v", a.Coll, a.Name, group.Hosts())
			p, err := a.OnHosts(plan.Spec{Coll: a.Coll, Ranks: ranks}, group)
			if errors.Is(err, fault.NotSupported) {
				require.Contains(t, a.Name, "window", name)
				require.NotEqual(t, dtype.AllReduce, a.Coll, name)
				continue
			}
			require.NoError(t, err, name)
			for rank := range ranks {
				prog := p.Program(rank)
				flat := prog.Flat()
				for _, s := range slices.Concat(flat.Lanes...) {
					peers := s.From
					if s.Kind == plan.Get || s.Kind == plan.Signal || s.Kind == plan.Wait {
						peers = append(peers, s.Peer)
					}
					for _, peer := range peers {
						require.Equal(t, host[rank], host[peer], "%s: %v of rank %d", name, s.Kind, rank)
					}
				}
			}
			report, err := verify.Plan(p, verify.Options{})
			require.NoError(t, err, name)
			if a.Coll.Reduces() && ranks > 2 {
				require.GreaterOrEqual(t, int(report.Determinism), min(a.Level, 2), name)
			}
			if a.Coll != dtype.AllReduce || a.Name == "mesh_2d" || a.Name == "torus_2d" {
				continue
			}
			across := 0
			for rank := range ranks {
				prog := p.Program(rank)
				to := map[int]bool{}
				flat := prog.Flat()
				for _, lane := range flat.Lanes {
					for _, s := range lane {
						if s.Kind == plan.Send && host[s.Peer] != host[rank] {
							to[s.Peer] = true
						}
					}
				}
				across = max(across, len(to))
			}
			require.Less(t, across, len(group.Hosts()), "%s: a rank sends to more than one rank of another host", name)
		}
	}
}

// TestAtSites proves the plans of all algorithms with levels on hosts at several sites. Where sites
// are a level, one rank of each site sends to one of another.
func TestAtSites(t *testing.T) {
	for _, at := range []struct {
		hosts, sites []int
		parts        int  // of the algorithms of which sites are a level
		all          bool // else of all_reduce only
	}{
		{[]int{0, 1, 2, 3}, []int{0, 0, 1, 1}, 2, true},
		{[]int{0, 1, 2, 3}, []int{0, 1, 1, 0}, 2, true},
		{[]int{0, 1, 2, 3, 4, 5}, []int{0, 1, 2, 2, 1, 0}, 2, true},
		{[]int{0, 1, 2, 3, 4}, []int{0, 0, 0, 1, 1}, 2, false},
		{[]int{0, 1, 2, 3, 4, 5}, []int{0, 1, 0, 0, 1}, 2, false},
		{[]int{0, 0, 1, 1, 2, 2, 3, 3}, []int{0, 0, 1, 1}, 3, true},
		{[]int{0, 1, 2, 3, 0, 1, 2, 3}, []int{0, 1, 0, 1}, 3, true},
		{[]int{0, 0, 1, 1}, []int{0, 1}, 3, true},
	} {
		group := topo.AtSites(at.hosts, at.sites)
		site := make([]int, group.Size())
		for i, ranks := range group.Sites() {
			for _, rank := range ranks {
				site[rank] = i
			}
		}
		for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
			for _, a := range slices.Concat(algo.Variants(coll, 2), algo.Variants(coll, 3)) {
				name := fmt.Sprintf("%v %s on hosts %v at %v", coll, a.Name, at.hosts, at.sites)
				p, err := a.OnHosts(plan.Spec{Coll: coll, Ranks: group.Size()}, group)
				if errors.Is(err, fault.NotSupported) {
					require.Contains(t, a.Name, "window", name)
					require.Equal(t, 2, at.parts, name)
					continue
				}
				require.NoError(t, err, name)
				_, err = verify.Plan(p, verify.Options{})
				require.NoError(t, err, name)
				if strings.Count(a.Name, ".") != at.parts || !at.all && coll != dtype.AllReduce {
					continue
				}
				for rank := range group.Size() {
					prog := p.Program(rank)
					to := map[int]map[int]bool{}
					for _, s := range slices.Concat(prog.Flat().Lanes...) {
						if s.Kind == plan.Send && site[s.Peer] != site[rank] {
							if to[site[s.Peer]] == nil {
								to[site[s.Peer]] = map[int]bool{}
							}
							to[site[s.Peer]][s.Peer] = true
						}
					}
					for other, ranks := range to {
						require.Len(t, ranks, 1, "%s: rank %d sends to several ranks of site %d", name, rank, other)
					}
				}
			}
		}
	}
}

// Plans that would read windows of other hosts are refused.
func TestOnHostsWindows(t *testing.T) {
	hosts := topo.OnHosts(0, 0, 0, 1)
	for coll, name := range map[dtype.Collective]string{
		dtype.AllReduce: "two_shot_window", dtype.Broadcast: "window", dtype.AllGather: "hierarchical.window.ring",
	} {
		a, err := algo.Find(coll, name)
		require.NoError(t, err)
		_, err = a.OnHosts(plan.Spec{Coll: coll, Ranks: 4}, hosts)
		require.ErrorIs(t, err, fault.NotSupported)
		require.ErrorContains(t, err, "on 2 hosts")
		_, err = a.OnHosts(plan.Spec{Coll: coll, Ranks: 4}, topo.Spread(4, 1))
		require.NoError(t, err)
	}
}

// Algorithms without levels, and groups that are one host or have no two ranks on any, are as
// without hosts.
func TestOnHostsWithoutGrid(t *testing.T) {
	for _, test := range []struct {
		coll  dtype.Collective
		name  string
		ranks int
		on    *topo.Group
	}{
		{dtype.AllReduce, "ring", 4, topo.OnHosts(0, 0, 1, 1)},
		{dtype.AllReduce, "hierarchical", 4, topo.OnHosts(0, 0, 0, 0)},
		{dtype.AllReduce, "hierarchical", 4, topo.OnHosts(0, 1, 2, 3)},
		{dtype.AllGather, "hierarchical", 4, topo.OnHosts(0, 0, 0, 1)},
		{dtype.AllToAll, "hierarchical", 4, topo.OnHosts(0, 1, 0, 1)},
	} {
		a, err := algo.Find(test.coll, test.name)
		require.NoError(t, err)
		spec := plan.Spec{Coll: test.coll, Ranks: test.ranks}
		want, err := a.Make(spec)
		require.NoError(t, err)
		got, err := a.OnHosts(spec, test.on)
		require.NoError(t, err)
		require.Equal(t, want.Text(), got.Text(), "%s on %v", test.name, test.on)
	}
}
