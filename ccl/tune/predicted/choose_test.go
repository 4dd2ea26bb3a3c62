package predicted

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
)

// gigabit is a network as it was measured between namespaces with ports of 1 Gbit/s.
func gigabit() *cost.Path {
	p := &cost.Path{Latency: 3.7e-6, Bandwidth: 119.7e6, Burst: 119e3, Send: cost.Work{Each: 1.4e-6},
		Receive: cost.Work{Each: 1.8e-6}}
	p.TCP()
	return p
}

// These are the choices that the measurements of docs/predict.md bear out.
func TestChoices(t *testing.T) {
	choosers := map[int]*Chooser{}
	for ranks := range mostRanks + 2 {
		choosers[ranks] = chooser(ranks, gigabit())
	}
	for _, test := range []struct {
		coll  dtype.Collective
		ranks int
		bytes int64
		usual string
		want  string
	}{
		{dtype.Broadcast, 6, 1 << 20, "binomial", "chain"}, // 2.7 times as fast
		{dtype.Broadcast, 6, 16 << 10, "binomial", "chain"},
		{dtype.Broadcast, 3, 1 << 10, "binomial", "binomial"},
		{dtype.AllReduce, 4, 1 << 20, "ring", "ring"},
		{dtype.AllReduce, 6, 1 << 20, "recursive_doubling", "ring"},
		{dtype.AllGather, 4, 1 << 20, "ring", "ring"},
		{dtype.ReduceScatter, 2, 1 << 20, "ring", "ring"},
		{dtype.Broadcast, 32, 1 << 20, "binomial", "chain"},
		{dtype.AllReduce, 16, 1 << 10, "direct", "recursive_doubling"},
		{dtype.AllReduce, 32, 1 << 20, "two_shot", "two_shot"}, // that is too long to simulate

		{dtype.AllToAll, 4, 1 << 20, "linear", "linear"}, // no rank knows the size
		{dtype.Barrier, 4, 0, "dissemination", "dissemination"},
		{dtype.AllReduce, mostRanks + 1, 64, "direct", "direct"}, // too many to simulate
		{dtype.AllReduce, 1, 64, "direct", "direct"},
		{dtype.AllReduce, 4, 0, "direct", "direct"},
	} {
		call := tune.Call{Coll: test.coll, Bytes: test.bytes}
		got := choosers[test.ranks].Choose(call, test.usual)
		require.Equal(t, test.want, got, "%+v", test)
		require.Equal(t, got, choosers[test.ranks].Choose(call, test.usual), "it is kept")
	}
	// Sizes of a class have the same choice, and long ones that of the longest that is simulated.
	for _, bytes := range []int64{800 << 10, 1 << 20, 1400 << 10, 1 << 40} {
		require.Equal(t, "chain", choosers[6].Choose(tune.Call{Coll: dtype.Broadcast, Bytes: bytes}, "binomial"), bytes)
	}
}

// chooser returns the Chooser of hosts of a rank each.
func chooser(hosts int, network *cost.Path) *Chooser {
	return NewChooser(topo.Spread(max(hosts, 1), max(hosts, 1)), network, nil, 4)
}

// TestChoosesSites has two sites of two hosts, at several distances. What crosses the distance in
// few steps is better until its bytes take longer.
func TestChoosesSites(t *testing.T) {
	on := topo.AtSites([]int{0, 1, 2, 3}, []int{0, 0, 1, 1})
	for _, test := range []struct {
		far   float64 // seconds
		bytes int64
		want  string
	}{
		{5e-3, 256 << 10, "hierarchical.direct.direct"},
		{25e-3, 1 << 20, "hierarchical.direct.direct"},
		{1e-5, 1 << 20, "ring"},
	} {
		far := gigabit()
		far.Latency = test.far
		c := NewChooser(on, gigabit(), far, 4)
		require.Equal(t, test.want, c.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: test.bytes}, "ring"), "%+v", test)
	}
	c := NewChooser(on, gigabit(), nil, 4)
	require.Equal(t, "ring", c.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: 64}, "ring"), "nobody knows the distance")
}

// Every rank that knows the same network chooses the same, whatever it has been asked before and by
// how many threads.
func TestAllChooseAlike(t *testing.T) {
	network := gigabit()
	network.Latency = 1e-3
	var group sync.WaitGroup
	chosen := make([]map[string]string, 4)
	for k := range chosen {
		chosen[k] = map[string]string{}
		var choosers []*Chooser
		for i := range 3 {
			choosers = append(choosers, chooser(2+i, network))
		}
		group.Go(func() {
			for i := range 40 {
				i = (i*7 + k*11) % 40
				ranks, bytes := i%3, int64(64)<<(i%10*2)
				for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.Reduce} {
					call := tune.Call{Coll: coll, Bytes: bytes}
					chosen[k][fmt.Sprint(coll, ranks, bytes)] = choosers[ranks].Choose(call, "binomial")
				}
			}
		})
	}
	group.Wait()
	for _, other := range chosen[1:] {
		require.Equal(t, chosen[0], other)
	}
}

// What another rank says of the network is bounded: no value makes this rank simulate for long, or
// fail.
func TestStrangeNetworks(t *testing.T) {
	sites := topo.AtSites([]int{0, 1, 2, 3}, []int{0, 0, 1, 1})
	for _, change := range []func(p *cost.Path){
		func(p *cost.Path) { p.Fragment, p.Credit = 1, 1 },
		func(p *cost.Path) { p.Fragment, p.Credit = -1, -1 },
		func(p *cost.Path) { p.Bandwidth = 0 },
		func(p *cost.Path) { p.Bandwidth = math.Inf(1) },
		func(p *cost.Path) { p.Bandwidth = 1e-300 },
		func(p *cost.Path) { p.Bandwidth = 1 },
		func(p *cost.Path) { p.Latency = -1 },
		func(p *cost.Path) { p.Latency = 1e300 },
		func(p *cost.Path) { p.Latency = 60 },
		func(p *cost.Path) { p.Send.Each = -1e-6 },
		func(p *cost.Path) { p.Receive.Byte = math.NaN() },
		func(p *cost.Path) { p.Burst = 1e30 },
		func(p *cost.Path) { *p = cost.Path{} },
	} {
		network := gigabit()
		change(network)
		begun := time.Now()
		for _, c := range []*Chooser{chooser(8, network), NewChooser(sites, gigabit(), network, 4)} {
			require.NotEmpty(t, c.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: 1 << 20}, "ring"))
		}
		require.Less(t, time.Since(begun), 20*time.Second, "%+v", network)
	}
}

func BenchmarkFirstChoice(b *testing.B) {
	for _, ranks := range []int{4, 8, mostRanks} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			for b.Loop() {
				chooser(ranks, gigabit()).Choose(tune.Call{Coll: dtype.AllReduce, Bytes: mostBytes}, "ring")
			}
		})
	}
}

func BenchmarkFirstChoiceOfSites(b *testing.B) {
	far := gigabit()
	far.Latency = 5e-3
	on := topo.AtSites([]int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 0, 0, 0, 1, 1, 1, 1})
	for b.Loop() {
		c := NewChooser(on, gigabit(), far, 4)
		c.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: mostFar}, "ring")
	}
}

func BenchmarkChoice(b *testing.B) {
	c := chooser(4, gigabit())
	call := tune.Call{Coll: dtype.AllReduce, Bytes: 1 << 20}
	begun := time.Now()
	c.Choose(call, "ring")
	b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms-first")
	for b.Loop() {
		c.Choose(call, "ring")
	}
}
