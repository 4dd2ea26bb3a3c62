package ccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/verify"
)

// onHosts joins ranks that take themselves for ranks of the hosts of a group: they share memory
// within hosts, and have TCP between them.
func onHosts(t *testing.T, group *topo.Group, opts GroupOptions) []*Communicator {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	endpoints, addresses := make([]*Endpoint, group.Size()), make([][]byte, group.Size())
	for rank := range endpoints {
		node, err := NewNode(NodeOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { node.Close() })
		e, err := node.Open(Config{Name: "hosts", Rank: rank, Size: group.Size(), Timeout: time.Minute, Options: opts})
		require.NoError(t, err)
		var a address
		require.NoError(t, json.Unmarshal(e.address, &a))
		a.Place.Network, a.Site = uint64(group.HostOf(rank)), group.Rank(rank).Site
		e.address, err = json.Marshal(a)
		require.NoError(t, err)
		endpoints[rank], addresses[rank] = e, e.address
	}
	comms := make([]*Communicator, group.Size())
	onAll(t, comms, func(rank int) (err error) {
		comms[rank], err = endpoints[rank].Join(ctx, addresses)
		return err
	})
	return comms
}

func onAll(t *testing.T, comms []*Communicator, run func(rank int) error) {
	t.Helper()
	errs := make([]error, len(comms))
	var group sync.WaitGroup
	for rank := range comms {
		group.Go(func() { errs[rank] = run(rank) })
	}
	group.Wait()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
	}
}

// TestHosts runs collectives on hosts of equal and unequal size whose ranks follow each other or do
// not, with sizes for which the choice differs.
func TestHosts(t *testing.T) {
	for _, group := range []*topo.Group{
		topo.OnHosts(0, 0, 1, 1), topo.OnHosts(0, 1, 0, 1), topo.OnHosts(0, 0, 1, 0), topo.OnHosts(0, 1, 2, 0, 1),
		topo.AtSites([]int{0, 1, 2, 3}, []int{0, 1, 0, 1}), topo.AtSites([]int{0, 1, 2, 3, 4}, []int{0, 0, 0, 1, 1}),
		topo.AtSites([]int{0, 0, 1, 1, 2, 2, 3, 3}, []int{0, 0, 1, 1}),
	} {
		t.Run(group.Form(), func(t *testing.T) {
			comms := onHosts(t, group, GroupOptions{})
			require.Equal(t, group.Sites(), comms[0].Group().Sites())
			n := len(comms)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for _, length := range []int{1, 2000, 40_000, 300_000} {
				onAll(t, comms, func(rank int) error {
					in, sum := make([]int32, length*n), make([]int32, length)
					for i := range in {
						in[i] = int32(rank*1000 + i%997)
					}
					// The sum of the first blocks, then of the rank's own block, then all of these.
					if err := AllReduce(ctx, comms[rank], in[:length], sum, Sum); err != nil {
						return err
					}
					ranks := int32(n * (n - 1) / 2 * 1000)
					for i, x := range sum {
						if want := ranks + int32(n*(i%997)); x != want {
							return fmt.Errorf("all_reduce of %d: element %d is %d, want %d", length, i, x, want)
						}
					}
					if err := ReduceScatter(ctx, comms[rank], in, sum, Sum); err != nil {
						return err
					}
					for i, x := range sum {
						if want := ranks + int32(n*((rank*length+i)%997)); x != want {
							return fmt.Errorf("reduce_scatter of %d: element %d is %d, want %d", length, i, x, want)
						}
					}
					if err := AllGather(ctx, comms[rank], sum, in); err != nil {
						return err
					}
					for i, x := range in {
						if want := ranks + int32(n*(i%997)); x != want {
							return fmt.Errorf("all_gather of %d: element %d is %d, want %d", length, i, x, want)
						}
					}
					return nil
				})
			}
		})
	}
}

// The choice uses the levels that hosts are, and gives rank order up for them only where it may.
func TestHostsAreChosen(t *testing.T) {
	for _, test := range []struct {
		group       *topo.Group
		determinism int
		coll        dtype.Collective
		bytes       int64
		windows     bool
		want        string
	}{
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 8, true, "recursive_doubling"},
		{topo.OnHosts(0, 1, 0, 1), 2, dtype.AllReduce, 8, true, "hierarchical.window.direct"},
		{topo.OnHosts(0, 0, 1, 1), 4, dtype.AllReduce, 8, true, "direct"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllGather, 8, true, "hierarchical.window.direct"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 64 << 10, true, "hierarchical.window.direct"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 1 << 20, true, "hierarchical.window.ring"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 16<<20 + 4, true, "hierarchical.direct.ring"},
		{topo.OnHosts(0, 0, 1, 1), 4, dtype.AllReduce, 1 << 20, true, "two_shot"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 8, false, "recursive_doubling"},
		{topo.OnHosts(0, 0, 0, 1), 2, dtype.AllReduce, 8, false, "hierarchical.direct.direct"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 64 << 10, false, "hierarchical.direct.direct"},
		{topo.OnHosts(0, 0, 1, 1), 2, dtype.AllReduce, 1 << 20, false, "hierarchical.direct.ring"},
		{topo.OnHosts(0, 1, 0, 1), 2, dtype.AllGather, 1 << 20, false, "hierarchical.direct.ring"},
		{topo.OnHosts(0, 0, 0, 1), 2, dtype.AllReduce, 1 << 20, false, "hierarchical.direct.ring"},
		{topo.OnHosts(0, 0, 0, 1), 2, dtype.ReduceScatter, 1 << 20, false, "ring"},
		{topo.OnHosts(0, 0, 1, 1), 4, dtype.AllReduce, 1 << 20, false, "two_shot"},
		{topo.OnHosts(0, 0, 1, 1), 4, dtype.AllGather, 1 << 20, false, "hierarchical.direct.ring"},
		{topo.OnHosts(0, 1, 2, 3), 2, dtype.AllReduce, 1 << 20, false, "ring"},
		{topo.AtSites([]int{0, 0, 1, 1, 2, 2, 3, 3}, []int{0, 0, 1, 1}), 2, dtype.AllReduce, 64 << 10, true,
			"hierarchical.window.direct.direct"},
	} {
		p := newPlanner(&GroupOptions{Determinism: test.determinism}, nil, test.group)
		if test.windows {
			p.group = test.group.WithSlot(windowSlot)
		}
		number := p.Choose(test.coll, test.bytes)
		require.Equal(t, test.want, p.names[number].Name, "%v on hosts of %s", test.coll, test.group.Sizes())
	}
}

// What runs on hosts is proven as it runs, and after itself: messages and windows in one program,
// on hosts of equal and unequal size.
func TestHostsAsRun(t *testing.T) {
	for _, hosts := range [][]int{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 0}, {0, 1, 2, 0, 1, 0, 2}} {
		for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
			for _, name := range []string{"window.direct", "window.ring", "direct.ring"} {
				a, err := algo.Find(coll, "hierarchical."+name)
				require.NoError(t, err)
				p, err := a.OnHosts(plan.Spec{Coll: coll, Ranks: len(hosts)}, topo.OnHosts(hosts...))
				if errors.Is(err, fault.NotSupported) {
					continue // it would read windows of other hosts
				}
				require.NoError(t, err)
				require.NoError(t, provenAsRun(p, true, 2, verify.DefaultWork), "%v %s on %v", coll, name, hosts)
			}
		}
	}
}
