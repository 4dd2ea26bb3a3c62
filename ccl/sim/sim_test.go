package sim

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo/network"
)

func build(t testing.TB, coll dtype.Collective, name string, ranks int) *plan.Plan {
	t.Helper()
	a, err := algo.Find(coll, name)
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: coll, Ranks: ranks})
	require.NoError(t, err)
	return p
}

func simulate(t testing.TB, p *plan.Plan, topology *network.Topology, o Options) *Result {
	t.Helper()
	r, err := Run(p, topology, o)
	require.NoError(t, err)
	var sent, received int64
	for rank := range r.Sent {
		sent += r.Sent[rank]
		received += r.Received[rank]
		require.LessOrEqual(t, r.Finish[rank], r.Makespan)
	}
	require.Equal(t, r.Bytes, sent, "what is sent arrives")
	require.Equal(t, r.Bytes, received)
	for l, busy := range r.LinkBusy { // a link carries no more than its capacity
		c := topology.Classes[topology.Links[l].Class]
		require.LessOrEqual(t, float64(r.LinkBytes[l]), busy*c.Bandwidth*(1+1e-9)+1e-9)
		require.LessOrEqual(t, busy, r.Makespan*(1+1e-9))
	}
	return r
}

func equal(t testing.TB, want, got float64, words ...any) {
	t.Helper()
	if want == 0 {
		require.Zero(t, got, words...)
		return
	}
	require.InEpsilon(t, want, got, 1e-9, words...)
}

// perBlock returns the elements of a block of a vector of m bytes, with elements of one byte.
func perBlock(coll dtype.Collective, ranks, m int) int {
	switch coll {
	case dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll, dtype.Gather, dtype.Scatter:
		return m / ranks
	}
	return m
}

func TestClosedFormulas(t *testing.T) {
	costs := []Cost{{1e-6, 1. / 25e9, 0}, {0, 1. / 25e9, 1. / 50e9}, {5e-6, 1. / 1e9, 1. / 8e9}, {1e-6, 1e-12, 0}}
	for _, f := range Formulas() {
		t.Run(f.Coll.String()+"/"+f.Name, func(t *testing.T) {
			require.NotEmpty(t, f.Text+f.Source)
			for _, n := range []int{2, 3, 4, 6, 7, 8, 16, 32} {
				p := build(t, f.Coll, f.Name, n)
				for _, c := range costs {
					m := n * n * 64 * 96
					for _, full := range []bool{false, true} {
						r := simulate(t, p, network.Uniform(n, network.Wire{Alpha: c.Alpha, Bandwidth: 1 / c.Beta}),
							Options{Elements: perBlock(f.Coll, n, m), Gamma: c.Gamma, Full: full})
						want := f.Time(c, n, float64(m))
						if f.Exact(n) {
							equal(t, want, r.Makespan, n, c, full)
						} else {
							require.Less(t, r.Makespan, 4*want, "%d ranks %v", n, c)
							require.Greater(t, r.Makespan, want/4, "%d ranks %v", n, c)
						}
					}
				}
			}
		})
	}
	_, ok := FormulaOf(dtype.AllReduce, "none")
	require.False(t, ok)
}

func TestTensorParallelMessage(t *testing.T) {
	// 1.6 GB over 8 ranks with 600 GB/s a link: 2·7/8·1.6/600 s.
	p := build(t, dtype.AllReduce, "ring", 8)
	r := simulate(t, p, network.Uniform(8, network.Wire{Bandwidth: 600e9}), Options{Elements: 4e8, ElementBytes: 4})
	require.InDelta(t, 4.67e-3, r.Makespan, 0.005e-3)
	equal(t, 14./8*1.6e9/600e9, r.Makespan)
}

func TestCrossover(t *testing.T) {
	c := Cost{Alpha: 2e-6, Beta: 1. / 25e9}
	for _, n := range []int{4, 8, 16} {
		ring, doubling := build(t, dtype.AllReduce, "ring", n), build(t, dtype.AllReduce, "recursive_doubling", n)
		topology := network.Uniform(n, network.Wire{Alpha: c.Alpha, Bandwidth: 25e9})
		at := allReduceCrossover(c, n)
		faster := func(m float64) bool {
			o := Options{Elements: int(m) / (n * n) * n * n}
			return simulate(t, ring, topology, o).Makespan < simulate(t, doubling, topology, o).Makespan
		}
		require.False(t, faster(0.98*at), "%d ranks, %v bytes", n, at)
		require.True(t, faster(1.02*at), "%d ranks, %v bytes", n, at)
	}
	require.True(t, math.IsInf(allReduceCrossover(c, 2), 1), "with two ranks, doubling is never worse")
}

// line returns a topology of nodes in a row, each a rank that forwards.
func line(bandwidths ...float64) *network.Topology {
	t := &network.Topology{Name: "line"}
	last := t.AddRank("r0", true)
	for i, b := range bandwidths {
		next := t.AddRank("r"+string(rune('1'+i)), true)
		t.AddLink(last, next, t.AddClass("c"+string(rune('0'+i)), 0, b))
		last = next
	}
	return t
}

// hand returns a plan from lists of lanes by rank; every rank has n blocks of In and Out.
func hand(ranks int, lanes map[int][][]plan.Step) *plan.Plan {
	return &plan.Plan{Name: "hand", Spec: plan.Spec{Coll: dtype.AllToAll, Ranks: ranks}, Split: 1, Chans: 2, Flags: 2,
		Program: func(rank int) plan.Program {
			return plan.Program{Lanes: lanes[rank], Win: make([]plan.Extent, 4)}
		}}
}

func in(at, n int) []plan.Ref { return []plan.Ref{{Buf: plan.In, At: at, N: n}} }
func out(at, n int) plan.Ref  { return plan.Ref{Buf: plan.Out, At: at, N: n} }
func win(at, n int) plan.Ref  { return plan.Ref{Buf: plan.Win, At: at, N: n} }

func send(peer, n int) plan.Step { return plan.Step{Kind: plan.Send, Peer: peer, Src: in(0, n)} }
func recv(peer, n int) plan.Step { return plan.Step{Kind: plan.Recv, Peer: peer, Dst: out(0, n)} }

func one(steps ...plan.Step) [][]plan.Step { return [][]plan.Step{steps} }

func TestMaxMinFairness(t *testing.T) {
	t.Run("two flows share a link", func(t *testing.T) {
		topology := &network.Topology{Name: "y"}
		c := topology.AddClass("c", 0, 100)
		for _, name := range []string{"a", "b", "z"} {
			topology.AddRank(name, false)
		}
		hub := topology.AddSwitch("hub")
		for r := range 3 {
			topology.AddDuplex(r, hub, c)
		}
		p := hand(3, map[int][][]plan.Step{0: one(send(2, 1)), 1: one(send(2, 3)), 2: {{recv(0, 1)}, {recv(1, 3)}}})
		r := simulate(t, p, topology, Options{Elements: 100})
		equal(t, 2, r.Finish[0], "100 bytes at 50")
		equal(t, 4, r.Finish[1], "100 bytes at 50, then 200 at 100")
		equal(t, 4, r.LinkBusy[5])
		require.EqualValues(t, 400, r.LinkBytes[5])
		require.EqualValues(t, 2, r.Messages)
	})
	t.Run("three links in a row", func(t *testing.T) {
		// One flow over all links and one over each: all get a half.
		p := hand(4, map[int][][]plan.Step{
			0: {{send(3, 1)}, {send(1, 1)}}, 1: {{send(2, 1)}, {recv(0, 1)}}, 2: {{send(3, 1)}, {recv(1, 1)}},
			3: {{recv(0, 1)}, {recv(2, 1)}}})
		r := simulate(t, p, line(100, 100, 100), Options{Elements: 100})
		for rank := range 4 {
			equal(t, 2, r.Finish[rank])
		}
	})
	t.Run("unequal links", func(t *testing.T) {
		// The narrow link holds the long flow to 20, so the short flow of the wide link gets 80.
		p := hand(3, map[int][][]plan.Step{
			0: {{send(2, 1)}, {send(1, 4)}}, 1: {{send(2, 1)}, {recv(0, 4)}}, 2: {{recv(0, 1)}, {recv(1, 1)}}})
		r := simulate(t, p, line(100, 40), Options{Elements: 20})
		equal(t, 1, r.Finish[2])
		equal(t, 1, r.Finish[0])
	})
}

func TestFirstInFirstOut(t *testing.T) {
	// Two lanes send on one channel; the second message is shorter and arrives first, but the first
	// recv takes the first message.
	p := hand(2, map[int][][]plan.Step{0: {{send(1, 2)}, {send(1, 1)}}, 1: one(recv(0, 2), recv(0, 1))})
	order := simulate(t, p, line(100), Options{Elements: 100, Timeline: true})
	ends := map[int32]float64{}
	for _, s := range order.Timeline {
		if s.Rank == 1 {
			ends[s.Step] = s.End
		}
	}
	require.Equal(t, ends[0], ends[1], "both wait for the longer message")
	equal(t, 3, ends[0])
	late := hand(2, map[int][][]plan.Step{0: one(send(1, 1)),
		1: one(plan.Step{Kind: plan.Copy, Dst: out(0, 2), Src: in(0, 2)}, recv(0, 1))})
	equal(t, 2, simulate(t, late, line(100), Options{Elements: 100, Copy: 0.01}).Makespan,
		"a message waits for its recv, a send does not")
}

func TestOneSided(t *testing.T) {
	both := func() *network.Topology { return network.Uniform(3, network.Wire{Alpha: 1, Bandwidth: 100}) }
	put := plan.Step{Kind: plan.Put, Peer: 1, Dst: win(0, 1), Src: in(0, 1)}
	signal := plan.Step{Kind: plan.Signal, Peer: 1, Chan: 1}
	wait := plan.Step{Kind: plan.Wait, Peer: 0, Chan: 1}
	packet := plan.Step{Kind: plan.Packet, Peer: 1, Chan: 1, Dst: win(0, 1), Src: in(0, 1)}
	get := plan.Step{Kind: plan.Get, Peer: 1, Dst: out(0, 1), Src: []plan.Ref{win(0, 1)}}
	fetch := plan.Step{Kind: plan.GetReduce, Dst: out(0, 1), Src: []plan.Ref{in(0, 1)[0], win(0, 1), win(0, 1)},
		From: []int{0, 1, 2}}
	local := plan.Step{Kind: plan.GetReduce, Dst: out(0, 1), Src: []plan.Ref{in(0, 1)[0], in(1, 1)[0]},
		From: []int{0, 0}}
	reduce := plan.Step{Kind: plan.Reduce, Dst: out(0, 1), Src: []plan.Ref{in(0, 1)[0], in(1, 1)[0], in(2, 1)[0]}}
	for name, c := range map[string]struct {
		lanes map[int][][]plan.Step
		want  float64
		bytes int64
	}{
		"put and signal": {map[int][][]plan.Step{0: one(put, signal), 1: one(wait)}, 1 + 1 + 1, 100},
		"packet":         {map[int][][]plan.Step{0: one(packet), 1: one(wait)}, 1 + 1, 100},
		"get":            {map[int][][]plan.Step{0: one(get)}, 1 + 1, 100},
		"getreduce":      {map[int][][]plan.Step{0: one(fetch)}, 1 + 2 + 2*0.5, 200},
		"local":          {map[int][][]plan.Step{0: one(local)}, 0.5, 0},
		"reduce":         {map[int][][]plan.Step{0: one(reduce)}, 2 * 0.5, 0},
		"nothing":        {map[int][][]plan.Step{}, 0, 0},
		"empty loop": {map[int][][]plan.Step{0: one(plan.Step{Kind: plan.Loop, Times: 0, Body: []plan.Step{put}})},
			0, 0},
	} {
		r := simulate(t, hand(3, c.lanes), both(), Options{Elements: 100, Gamma: 0.005})
		equal(t, c.want, r.Makespan, name)
		require.Equal(t, c.bytes, r.Bytes, name)
	}
}

func TestLoopsEqualTheirUnrolledForm(t *testing.T) {
	for _, a := range algo.All() {
		for _, n := range []int{5, 6, 8} {
			p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: n})
			if err != nil {
				continue // some algorithms need another number of ranks, or a shape
			}
			flat := *p
			flat.Program = func(rank int) plan.Program { prog := p.Program(rank); return prog.Flat() }
			counts := func(from, to int) int { return 100 + 7*from + 3*to }
			topology := network.Rail(n, 1, network.Wire{Alpha: 1e-6, Bandwidth: 1e9},
				network.Wire{Alpha: 2e-6, Bandwidth: 5e8})
			for _, o := range []Options{{Elements: 1 << 12, Gamma: 1e-10}, {Elements: 1001, ElementBytes: 4},
				{Counts: counts}} {
				x, y := simulate(t, p, topology, o), simulate(t, &flat, topology, o)
				equal(t, y.Makespan, x.Makespan, a.Coll, a.Name, n)
				require.Equal(t, y.Sent, x.Sent)
				require.Equal(t, y.Messages, x.Messages)
			}
		}
	}
}

func TestMoreBandwidthIsNeverSlower(t *testing.T) {
	p := build(t, dtype.AllReduce, "ring", 6)
	last := math.Inf(1)
	for _, bandwidth := range []float64{1e8, 3e8, 1e9, 7e9, 1e11} {
		wide, narrow := network.Wire{Alpha: 1e-6, Bandwidth: bandwidth},
			network.Wire{Alpha: 1e-6, Bandwidth: bandwidth / 2}
		r := simulate(t, p, network.PCIe(6, wide, narrow), Options{Elements: 123457, ElementBytes: 4})
		require.LessOrEqual(t, r.Makespan, last)
		last = r.Makespan
	}
}

func TestSymmetry(t *testing.T) {
	wire, fast := network.Wire{Alpha: 1e-6, Bandwidth: 25e9}, network.Wire{Alpha: 3e-7, Bandwidth: 450e9}
	find := 0
	for _, c := range []struct {
		coll      dtype.Collective
		name      string
		shape     plan.Shape
		topology  *network.Topology
		ranks     int
		simulated int
	}{
		{dtype.AllReduce, "ring", plan.Shape{}, network.Uniform(256, wire), 256, 1},
		{dtype.AllReduce, "ring", plan.Shape{}, network.Ring(256, wire), 256, 1},
		{dtype.AllReduce, "ring", plan.Shape{}, network.FatTree(256, 8, 2, wire), 256, 0},
		{dtype.AllReduce, "ring", plan.Shape{}, network.Rail(32, 8, fast, wire), 256, 0},
		{dtype.AllReduce, "bidirectional_ring", plan.Shape{}, network.Ring(256, wire), 256, 1},
		{dtype.AllReduce, "hierarchical", plan.Shape{8, 32}, network.Rail(32, 8, fast, wire), 256, 0},
		{dtype.AllReduce, "torus_2d", plan.Shape{16, 16}, network.Torus([]int{16, 16}, wire), 256, 0},
		{dtype.AllGather, "ring", plan.Shape{}, network.Torus([]int{16, 16}, wire), 256, 0},
		{dtype.AllToAll, "linear", plan.Shape{}, network.Ring(48, wire), 48, 1},
		{dtype.AllToAll, "pairwise", plan.Shape{}, network.NVLink(64, wire), 64, 1},
		{dtype.Barrier, "dissemination", plan.Shape{}, network.Uniform(256, wire), 256, 1},
	} {
		a, err := algo.Find(c.coll, c.name)
		if err != nil {
			continue
		}
		p, err := a.Make(plan.Spec{Coll: c.coll, Ranks: c.ranks, Shape: c.shape})
		if err != nil {
			continue
		}
		o := Options{Elements: 1 << 20, Gamma: 1e-11}
		if c.coll == dtype.AllToAll || c.coll == dtype.AllGather {
			o.Elements = 1 << 10
		}
		batched := simulate(t, p, c.topology, o)
		if c.simulated > 0 {
			require.Equal(t, c.simulated, batched.Simulated, "%v/%s on %s", c.coll, c.name, c.topology.Name)
		}
		if batched.Simulated < c.ranks {
			find++
		}
		o.Full = true
		full := simulate(t, p, c.topology, o)
		require.Equal(t, c.ranks, full.Simulated)
		equal(t, full.Makespan, batched.Makespan, c.name, c.topology.Name)
		require.Equal(t, full.Messages, batched.Messages)
		require.Equal(t, full.LinkBytes, batched.LinkBytes)
		require.Equal(t, full.Sent, batched.Sent)
		for rank := range c.ranks {
			equal(t, full.Finish[rank], batched.Finish[rank], c.name, rank)
		}
		for l := range full.LinkBusy {
			require.InDelta(t, full.LinkBusy[l], batched.LinkBusy[l], 1e-9*full.Makespan)
		}
	}
	require.GreaterOrEqual(t, find, 5)
}

func TestFourThousandRanks(t *testing.T) {
	p := build(t, dtype.AllReduce, "ring", 4096)
	r, err := Run(p, network.Uniform(4096, network.Wire{Alpha: 1e-6, Bandwidth: 25e9}),
		Options{Elements: 1 << 28, ElementBytes: 4})
	require.NoError(t, err)
	equal(t, AllReduceRing(Cost{Alpha: 1e-6, Beta: 1. / 25e9}, 4096, 1<<30), r.Makespan)
	require.EqualValues(t, 2*4095*4096, r.Messages)
}

// TestPeers has plans whose steps have one peer each, and loops whose peers advance.
func TestPeers(t *testing.T) {
	topology := network.Uniform(32, network.Wire{Alpha: 1e-6, Bandwidth: 25e9})
	for name, c := range map[string]struct {
		coll  dtype.Collective
		peers int
	}{
		"ring": {dtype.AllReduce, 2}, "recursive_doubling": {dtype.AllReduce, 5}, "direct": {dtype.AllReduce, 31},
		"pairwise": {dtype.AllToAll, 31}, "one_shot_window": {dtype.AllReduce, 31}, "binomial": {dtype.Broadcast, 5},
	} {
		r := simulate(t, build(t, c.coll, name, 32), topology, Options{Elements: 64})
		require.Equal(t, c.peers, r.Peers, name)
	}
}

func TestPlacement(t *testing.T) {
	// Neighbours of the ring are next to each other, or on different hosts.
	p := build(t, dtype.AllReduce, "ring", 8)
	topology := network.PCIe(8, network.Wire{Bandwidth: 1e9}, network.Wire{Bandwidth: 1e9})
	near := simulate(t, p, topology, Options{Elements: 1 << 20})
	far := simulate(t, p, topology, Options{Elements: 1 << 20, Placement: []int{0, 4, 1, 5, 2, 6, 3, 7}})
	require.Greater(t, far.Makespan, 2*near.Makespan)
}

func TestTrace(t *testing.T) {
	p := build(t, dtype.AllReduce, "ring", 3)
	r := simulate(t, p, network.Uniform(3, network.Wire{Alpha: 1e-6, Bandwidth: 1e9}),
		Options{Elements: 3000, Timeline: true})
	require.Equal(t, 3, r.Simulated)
	var text bytes.Buffer
	require.NoError(t, r.WriteTrace(&text))
	var trace struct {
		TraceEvents []struct {
			Ph, Name string
			Pid, Tid int
			Ts, Dur  float64
		}
	}
	require.NoError(t, json.Unmarshal(text.Bytes(), &trace))
	slices, last, names := 0, 0.0, map[string]bool{}
	for _, e := range trace.TraceEvents {
		names[e.Name] = true
		if e.Ph == "X" {
			slices++
			last = max(last, e.Ts+e.Dur)
		}
	}
	steps := 0
	for rank := range 3 {
		prog := p.Program(rank)
		for _, lane := range prog.Lanes {
			steps += plan.Len(lane)
		}
	}
	require.Equal(t, steps, slices)
	require.InEpsilon(t, 1e6*r.Makespan, last, 1e-9)
	require.True(t, names["send to 1"] && names["recv from 2"] && names["process_name"])
	require.Equal(t, "copy", (&Span{Kind: plan.Copy}).name())
}

func TestWrongUse(t *testing.T) {
	p := build(t, dtype.AllReduce, "ring", 4)
	uniform := network.Uniform(4, network.Wire{Bandwidth: 1})
	for words, o := range map[string]Options{
		"-1 elements":                       {Elements: -1},
		"elements of -2 bytes":              {ElementBytes: -2},
		"gamma -1":                          {Gamma: -1},
		"2 ranks are placed":                {Placement: []int{0, 1}},
		"rank 3 is placed at rank 4":        {Placement: []int{0, 1, 2, 4}},
		"rank 3 is placed at rank 2 of":     {Placement: []int{0, 1, 2, 2}},
		"9223372036854775807 elements of 1": {Elements: math.MaxInt64},
	} {
		_, err := Run(p, uniform, o)
		require.ErrorContains(t, err, words)
		require.ErrorIs(t, err, fault.Invalid)
	}
	_, err := Run(p, network.Uniform(3, network.Wire{Bandwidth: 1}), Options{})
	require.ErrorContains(t, err, "has 3 ranks only")
	for name, wire := range map[string]network.Wire{"slow": {Bandwidth: 5e-324},
		"late": {Alpha: math.MaxFloat64, Bandwidth: 1}} {
		_, err = Run(p, network.Ring(4, wire), Options{Elements: 1 << 20})
		require.ErrorContains(t, err,
			"it takes longer than 1e+100 s; check the latencies and bandwidths of topology ring-4", name)
	}
	_, err = Run(p, uniform, Options{Elements: 1 << 20, Gamma: 1e300})
	require.ErrorContains(t, err, "it takes longer than 1e+100 s")
	_, err = Run(p, network.Uniform(0, network.Wire{Bandwidth: 1}), Options{})
	require.ErrorContains(t, err, "uniform-0: size [0], want 1 to 65536 ranks in all")
	_, err = Run(p, &network.Topology{}, Options{})
	require.Error(t, err)
	_, err = Run(&plan.Plan{Name: "x", Spec: plan.Spec{Coll: dtype.Barrier, Ranks: 0}}, uniform, Options{})
	require.ErrorContains(t, err, "0 ranks")
	_, err = Run(&plan.Plan{Name: "x", Spec: plan.Spec{Coll: dtype.Barrier, Ranks: 1}}, uniform, Options{})
	require.ErrorContains(t, err, "no programs")
	_, err = Run(p, line(1, 1, 1), Options{Elements: 4})
	require.ErrorContains(t, err, "has no path to rank 0")
	_, err = Run(p, line(1, 1, 1), Options{Elements: 4, Full: true})
	require.ErrorContains(t, err, "has no path to rank 0")
}

func TestBrokenPlans(t *testing.T) {
	after := recv(0, 1)
	after.After = []plan.Point{{Lane: 1, Step: 0}}
	big := plan.Step{Kind: plan.Loop, Times: plan.MaxSteps + 1, Body: one(send(1, 1))[0]}
	for words, lanes := range map[string]map[int][][]plan.Step{
		"rank 1, lane 0, step 0: recv waits for something of rank 0 that never comes": {1: one(recv(0, 1))},
		"recv waits for steps of other lanes, [{1 0}], that never end":                {1: {{after}, {recv(2, 1)}}},
		"rank 0, lane 0, step 0: peer 9 of 3 ranks":                                   {0: one(send(9, 1))},
		"peer 0 of 3 ranks": {0: one(send(0, 1))},
		"source rank 7": {0: one(
			plan.Step{Kind: plan.GetReduce, Dst: out(0, 1), Src: in(0, 1), From: []int{7}})},
		"a step loop here":        {0: one(plan.Step{Kind: plan.Loop, Times: 1, Body: []plan.Step{{Kind: plan.Loop}}})},
		"has 65 lanes":            {0: make([][]plan.Step, 65)},
		"more than 1048576 steps": {0: one(big)},
	} {
		_, err := Run(hand(3, lanes), network.Uniform(3, network.Wire{Bandwidth: 1}), Options{Elements: 1})
		require.ErrorContains(t, err, words)
	}
}

// TestShiftedStrides: peers that advance, with and without wrapping around, are recognised as the
// same.
func TestShiftedStrides(t *testing.T) {
	const n = 6
	p := &plan.Plan{Name: "rotation", Spec: plan.Spec{Coll: dtype.AllToAll, Ranks: n}, Split: 1, Chans: 1,
		Program: func(rank int) plan.Program {
			step := func(kind plan.Kind, first, by int) plan.Step {
				s := plan.Step{Kind: kind, Peer: (rank + first + n) % n,
					By: &plan.Advance{Peer: plan.Stride{By: by, Mod: n}}}
				if kind == plan.Send {
					s.Src = in(0, 1)
				} else {
					s.Dst = out(0, 1)
				}
				return plan.Step{Kind: plan.Loop, Times: n - 1, Body: []plan.Step{s}}
			}
			from := make([]int, n)
			for i := range from {
				from[i] = (rank + i) % n
			}
			fetch := plan.Step{Kind: plan.GetReduce, Dst: out(0, 1), From: from, Src: make([]plan.Ref, n)}
			for i := range fetch.Src {
				fetch.Src[i] = plan.Ref{Buf: plan.Win, N: 1}
			}
			fetch.By = &plan.Advance{From: make([]plan.Stride, n)}
			get := plan.Step{Kind: plan.Get, Peer: (rank + 1) % n, Dst: out(0, 1), Src: []plan.Ref{win(0, 1)}}
			return plan.Program{Win: make([]plan.Extent, 1), Lanes: [][]plan.Step{
				{step(plan.Send, 1, 1)}, {step(plan.Recv, -1, -1)},
				{{Kind: plan.Loop, Times: 2, Body: []plan.Step{fetch}}}, {get}}}
		}}
	topology := network.Ring(n, network.Wire{Alpha: 1e-6, Bandwidth: 1e9})
	batched := simulate(t, p, topology, Options{Elements: 1000, Gamma: 1e-9})
	full := simulate(t, p, topology, Options{Elements: 1000, Gamma: 1e-9, Full: true})
	require.Equal(t, 1, batched.Simulated)
	equal(t, full.Makespan, batched.Makespan)
	require.Equal(t, full.LinkBytes, batched.LinkBytes)
	traced := simulate(t, p, topology, Options{Elements: 1000, Gamma: 1e-9, Timeline: true})
	require.Equal(t, full.Makespan, traced.Makespan)
}

// allReduceCrossover returns the number of bytes above which the ring beats recursive doubling,
// where their formulas meet; infinity if they do not meet.
func allReduceCrossover(c Cost, ranks int) float64 {
	n, steps := float64(ranks), log(ranks)
	alpha := (2*(n-1) - steps) * c.Alpha
	byte := steps*(c.Beta+c.Gamma) - rest(ranks)*(2*c.Beta+c.Gamma)
	if byte <= 0 {
		return math.Inf(1)
	}
	return alpha / byte
}
