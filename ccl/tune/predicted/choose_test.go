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
	c := NewChooser(gigabit(), 4)
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

		{dtype.AllToAll, 4, 1 << 20, "linear", "linear"}, // no rank knows the size
		{dtype.Barrier, 4, 0, "dissemination", "dissemination"},
		{dtype.AllReduce, mostRanks + 1, 64, "direct", "direct"}, // too many to simulate
		{dtype.AllReduce, 1, 64, "direct", "direct"},
		{dtype.AllReduce, 4, 0, "direct", "direct"},
	} {
		call := tune.Call{Coll: test.coll, Bytes: test.bytes}
		got := c.Choose(call, test.ranks, test.usual)
		require.Equal(t, test.want, got, "%+v", test)
		require.Equal(t, got, c.Choose(call, test.ranks, test.usual), "it is kept")
	}
	// Sizes of a class have the same choice, and long ones that of the longest that is simulated.
	for _, bytes := range []int64{800 << 10, 1 << 20, 1400 << 10, 1 << 40} {
		require.Equal(t, "chain", c.Choose(tune.Call{Coll: dtype.Broadcast, Bytes: bytes}, 6, "binomial"), bytes)
	}
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
		c := NewChooser(network, 4)
		group.Go(func() {
			for i := range 40 {
				i = (i*7 + k*11) % 40
				ranks, bytes := 2+i%3, int64(64)<<(i%10*2)
				for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.Reduce} {
					call := tune.Call{Coll: coll, Bytes: bytes}
					chosen[k][fmt.Sprint(coll, ranks, bytes)] = c.Choose(call, ranks, "binomial")
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
		name := NewChooser(network, 4).Choose(tune.Call{Coll: dtype.AllReduce, Bytes: 1 << 20}, 8, "ring")
		require.NotEmpty(t, name)
		require.Less(t, time.Since(begun), 20*time.Second, "%+v", network)
	}
}

func BenchmarkFirstChoice(b *testing.B) {
	for _, ranks := range []int{4, mostRanks} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			for b.Loop() {
				c := NewChooser(gigabit(), 4)
				c.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: mostBytes}, ranks, "ring")
			}
		})
	}
}

func BenchmarkChoice(b *testing.B) {
	c := NewChooser(gigabit(), 4)
	call := tune.Call{Coll: dtype.AllReduce, Bytes: 1 << 20}
	begun := time.Now()
	c.Choose(call, 4, "ring")
	b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms-first")
	for b.Loop() {
		c.Choose(call, 4, "ring")
	}
}
