package measured

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune/predicted"
)

// invented returns samples of a machine with the given costs, each of which is off by up to noise.
func invented(t *testing.T, c cost.Table, between bool, algorithms []string, noise float64) (all []Sample) {
	t.Helper()
	hosts := 1
	if between {
		hosts = 2
	}
	on, err := Group(2, hosts, Slot, !between)
	require.NoError(t, err)
	p, err := predicted.New(on, &c)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	add := func(s Sample, seconds float64, err error) {
		require.NoError(t, err)
		for range 3 {
			s.Blocks = append(s.Blocks, seconds*(1+noise*(2*random.Float64()-1)))
		}
		all = append(all, s)
	}
	for bytes := int64(64); bytes <= 4<<20; bytes *= 8 {
		const calls = 20
		seconds, err := p.PingPong(bytes, calls)
		add(Sample{Coll: dtype.Send, Bytes: bytes, Calls: calls}, seconds, err)
		for _, name := range algorithms {
			seconds, err := p.Call(dtype.AllReduce, name, bytes, 4, calls)
			add(Sample{Coll: dtype.AllReduce, Algorithm: name, Bytes: bytes, Calls: calls}, seconds, err)
		}
	}
	return all
}

// A fit finds the network that samples come from, or one that is as good.
func TestFitNetwork(t *testing.T) {
	for _, latency := range []float64{3e-6, 2.5e-3} {
		real := *cost.Usual()
		real.Network = cost.Path{Latency: latency, Bandwidth: 119e6, Burst: 128 << 10,
			Send: cost.Work{Each: 2e-6, Byte: 2e-10}, Receive: cost.Work{Each: 3e-6, Byte: 3e-10}}
		real.Network.TCP()
		samples := invented(t, real, true, []string{"direct", "ring"}, 0.01)
		samples[4].Blocks[1] *= 30 // something else ran
		made, misfit, err := Fit(samples, true, *cost.Usual())
		require.NoError(t, err)
		require.Less(t, misfit, 0.03)
		if latency < 1e-3 { // else a burst and bandwidth are much the same
			require.InEpsilon(t, real.Network.Bandwidth, made.Network.Bandwidth, 0.03)
			require.InEpsilon(t, real.Network.Burst, made.Network.Burst, 0.2)
		}
		require.Equal(t, real.Network.Credit, made.Network.Credit)
		require.Equal(t, real.Windows, made.Windows, "nobody has measured them")
		require.NoError(t, made.Validate())

		// What counts is what is predicted of calls that were not measured, with more ranks.
		on, err := Group(5, 5, Slot, false)
		require.NoError(t, err)
		want, err := predicted.New(on, &real)
		require.NoError(t, err)
		got, err := predicted.New(on, &made)
		require.NoError(t, err)
		for _, name := range []string{"rabenseifner", "double_binary_tree"} {
			a, err := want.Call(dtype.AllReduce, name, 1<<20, 4, 3)
			require.NoError(t, err)
			b, err := got.Call(dtype.AllReduce, name, 1<<20, 4, 3)
			require.NoError(t, err)
			require.InEpsilon(t, a, b, 0.05, name)
		}
	}
}

func TestFitHost(t *testing.T) {
	real := *cost.Usual()
	real.Memory.Latency, real.Copy.Byte, real.Windows.Read.Byte = 0.4e-6, 0.1e-9, 0.3e-9
	samples := invented(t, real, false, []string{"direct", "one_shot_window", "two_shot_window"}, 0)
	made, misfit, err := Fit(samples, false, *cost.Usual())
	require.NoError(t, err)
	require.Less(t, misfit, 0.05)
	require.Equal(t, real.Network, made.Network, "nobody has measured it")
	require.Equal(t, real.Memory.Switch, made.Memory.Switch, "no sample has ranks that share a core")
}

func TestFitRefuses(t *testing.T) {
	ping := func(bytes int64, seconds float64) Sample {
		return Sample{Coll: dtype.Send, Bytes: bytes, Calls: 1, Blocks: []float64{seconds}}
	}
	for _, test := range []struct {
		samples []Sample
		says    string
	}{
		{nil, "a fit needs a ping-pong of 1024 bytes or less, and one of 65536 or more"},
		{[]Sample{ping(64, 1)}, "and one of 65536 or more"},
		{[]Sample{ping(1<<20, 1)}, "of 1024 bytes or less"},
		{[]Sample{ping(64, 0), ping(1<<20, 1)}, "send of 64 bytes took no time"},
		{[]Sample{{Coll: dtype.Send, Bytes: 64}}, "took no time"},
		{[]Sample{ping(64, 1), ping(1<<20, 1),
			{Coll: dtype.AllReduce, Algorithm: "none", Bytes: 64, Calls: 1, Blocks: []float64{1}}}, `"none"`},
	} {
		_, _, err := Fit(test.samples, true, *cost.Usual())
		require.ErrorContains(t, err, test.says)
	}
}

func TestSpread(t *testing.T) {
	s := func(blocks ...float64) Sample { return Sample{Blocks: blocks} }
	require.InDelta(t, 0.5, Spread([]Sample{s(1, 1), s(2, 3), s(1, 9)}), 1e-9)
}
