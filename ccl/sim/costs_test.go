package sim

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// wire is a network that only costs what a test adds.
func wire() *cost.Table {
	return &cost.Table{
		Network: cost.Path{Bandwidth: 1e9, Fragment: 64 << 10, Credit: 16},
		Far:     cost.Path{Bandwidth: 1e9, Fragment: 64 << 10, Credit: 16},
		Memory:  cost.Path{Fragment: 64 << 10, Credit: 16},
	}
}

// grouped returns a group whose ranks are hosts of their own, or are on one host with that many
// cores.
func grouped(t testing.TB, ranks, cores int) *topo.Group {
	said := make([]topo.Rank, ranks)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: ranks, Place: topo.Place{Machine: strconv.Itoa(rank)}, Cores: "0"}
		if cores > 0 {
			said[rank].Place.Machine, said[rank].Transports = "all", []string{"shm"}
			said[rank].Cores = fmt.Sprintf("0-%d", cores-1)
		}
	}
	on, err := topo.Agree(said)
	require.NoError(t, err)
	return on
}

// seconds simulates calls with blocks of so many bytes.
func seconds(t testing.TB, p *plan.Plan, on *topo.Group, c *cost.Table, bytes, calls int) float64 {
	t.Helper()
	r, err := Run(p, Network(on, c), Options{Elements: bytes, Costs: c, On: on, Calls: calls})
	require.NoError(t, err)
	return r.Makespan
}

// exchange is a plan of two ranks with the steps of each in one lane.
func exchange(steps [2][]plan.Step) *plan.Plan {
	p := &plan.Plan{Name: "test", Split: 1, Chans: 1, Needs: plan.Messages,
		Spec: plan.Spec{Coll: dtype.AllGather, Ranks: 2}}
	p.Program = func(rank int) plan.Program { return plan.Program{Lanes: [][]plan.Step{steps[rank]}} }
	return p
}

func sends(rank int) plan.Step {
	return plan.Step{Kind: plan.Send, Peer: 1 - rank, Src: []plan.Ref{{Buf: plan.In, N: 1}}}
}

func takes(rank int) plan.Step {
	return plan.Step{Kind: plan.Recv, Peer: 1 - rank, Dst: plan.Ref{Buf: plan.Out, At: 1 - rank, N: 1}}
}

// pingPong is a message there and one back.
func pingPong() *plan.Plan {
	return exchange([2][]plan.Step{{sends(0), takes(0)}, {takes(1), sends(1)}})
}

// TestSiteCosts sends between hosts of one site and of two: what leaves a host shares its port, and
// between sites has what that costs.
func TestSiteCosts(t *testing.T) {
	on := topo.AtSites([]int{0, 1, 2}, []int{0, 0, 1})
	c := wire()
	c.Network.Latency, c.Far.Latency, c.Far.Bandwidth = 1e-6, 1e-3, 1e8
	c.Far.Send.Each, c.Far.Receive.Each = 2e-6, 3e-6
	const bytes = 1000
	equal(t, 1e-6+bytes/1e9, seconds(t, between(0, 1), on, c, bytes, 1))
	equal(t, 1e-3+5e-6+bytes/1e8, seconds(t, between(0, 2), on, c, bytes, 1))
	equal(t, 1e-3+5e-6+bytes/1e8, seconds(t, between(2, 1), on, c, bytes, 1))
	c.Far.Bandwidth = 1e12 // the port is slower
	equal(t, 1e-3+5e-6+bytes/1e9, seconds(t, between(0, 2), on, c, bytes, 1))
}

// between is a plan of three ranks, of which one sends a block to another.
func between(from, to int) *plan.Plan {
	return &plan.Plan{Name: "sends", Split: 1, Chans: 1, Needs: plan.Messages,
		Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 3},
		Program: func(rank int) plan.Program {
			block := plan.Ref{Buf: plan.In, N: 1}
			switch rank {
			case from:
				return plan.Program{Lanes: [][]plan.Step{{{Kind: plan.Send, Peer: to, Src: []plan.Ref{block}}}}}
			case to:
				block.Buf = plan.Out
				return plan.Program{Lanes: [][]plan.Step{{{Kind: plan.Recv, Peer: from, Dst: block}}}}
			}
			return plan.Program{}
		},
	}
}

func TestCostsOfAMessage(t *testing.T) {
	const bytes = 1000 // of one fragment
	on := grouped(t, 2, 0)
	c := wire()
	c.Network.Latency = 5e-6
	c.Network.Send, c.Network.Receive = cost.Work{Each: 1e-6, Byte: 2e-9}, cost.Work{Each: 3e-6, Byte: 4e-9}
	once := 1e-6 + 2e-9*bytes + bytes/c.Network.Bandwidth + 5e-6 + 3e-6 + 4e-9*bytes
	equal(t, 2*once, seconds(t, pingPong(), on, c, bytes, 1))
	equal(t, 14*once, seconds(t, pingPong(), on, c, bytes, 7), "calls follow one another")

	c.Call = 1e-5
	equal(t, 14*once+7*c.Call, seconds(t, pingPong(), on, c, bytes, 7), "the other rank enters meanwhile")

	// Between ranks of one host there is no wire.
	c = wire()
	c.Memory.Latency, c.Memory.Send, c.Memory.Receive = 1e-6, cost.Work{Each: 2e-6}, cost.Work{Byte: 1e-9}
	equal(t, 2*(1e-6+2e-6+1e-9*bytes), seconds(t, pingPong(), grouped(t, 2, 2), c, bytes, 1))
}

// The fragments of a message are on the wire while others are being sent and received.
func TestFragmentsOverlap(t *testing.T) {
	const bytes, f = 10 * 64 << 10, 64 << 10
	on := grouped(t, 2, 0)
	c := wire()
	c.Network.Send, c.Network.Receive = cost.Work{Byte: 0.5e-9}, cost.Work{Byte: 0.25e-9}
	equal(t, 2*(0.5e-9*f+bytes/1e9+0.25e-9*f), seconds(t, pingPong(), on, c, bytes, 1), "the wire is the slowest")
	c.Network.Receive.Byte = 2e-9
	equal(t, 2*(0.5e-9*f+f/1e9+2e-9*bytes), seconds(t, pingPong(), on, c, bytes, 1), "the receiver is the slowest")

	// Without credit the sender waits until its peer has taken a fragment: here half of a round
	// trip of 1 ms for each fragment.
	c = wire()
	c.Network.Latency, c.Network.Credit = 0.5e-3, 1
	want := 10*(f/1e9+0.5e-3) + 9*0.5e-3
	equal(t, 2*want, seconds(t, pingPong(), on, c, bytes, 1))

	// Both directions of a wire are one each.
	both := exchange([2][]plan.Step{{sends(0), takes(0)}, {sends(1), takes(1)}})
	equal(t, bytes/1e9, seconds(t, both, on, wire(), bytes, 1))
}

// A chain passes a message on as it comes in: each hop adds a fragment.
func TestPipelinedChain(t *testing.T) {
	const bytes, f = 16 * 64 << 10, 64 << 10
	for _, n := range []int{2, 3, 6} {
		p := &plan.Plan{Name: "chain", Split: 1, Chans: 1, Needs: plan.Messages,
			Spec: plan.Spec{Coll: dtype.Broadcast, Ranks: n}}
		p.Program = func(rank int) plan.Program {
			out := plan.Ref{Buf: plan.Out, N: 1}
			var lanes [2][]plan.Step
			if rank > 0 {
				lanes[0] = []plan.Step{{Kind: plan.Recv, Peer: rank - 1, Dst: out}}
			}
			if rank < n-1 {
				step := plan.Step{Kind: plan.Send, Peer: rank + 1, Src: []plan.Ref{out}}
				if rank > 0 {
					step.After = []plan.Point{{Lane: 0, Step: 0}}
				}
				lanes[1] = []plan.Step{step}
			}
			return plan.Program{Lanes: lanes[:]}
		}
		equal(t, (bytes+float64(n-2)*f)/1e9, seconds(t, p, grouped(t, n, 0), wire(), bytes, 1), n)
	}
}

// A token bucket lets messages pass at once, as long as they are rare.
func TestBurst(t *testing.T) {
	on := grouped(t, 2, 0)
	c := wire()
	c.Network.Burst = 128 << 10
	c.Network.Latency = 1e-6
	one := func(bytes, calls int) float64 { return seconds(t, pingPong(), on, c, bytes, calls) / float64(2*calls) }
	const many = 400
	// In a ping-pong each direction fills its bucket while the other one sends.
	require.InEpsilon(t, 32<<10/1e9/2, one(32<<10, many), 0.05)
	require.InEpsilon(t, (1<<20-128<<10)/1e9, one(1<<20, 20), 0.05)
	// Where nothing pauses, a bucket is soon empty.
	both := exchange([2][]plan.Step{{sends(0), takes(0)}, {sends(1), takes(1)}})
	require.InEpsilon(t, 32<<10/1e9, seconds(t, both, on, c, 32<<10, many)/many, 0.05)
}

// Ranks that share a core take turns.
func TestSharedCores(t *testing.T) {
	work := plan.Step{Kind: plan.Copy, Dst: plan.Ref{Buf: plan.Out, N: 1}, Src: []plan.Ref{{Buf: plan.In, N: 1}}}
	p := exchange([2][]plan.Step{{work}, {work}})
	c := wire()
	c.Copy, c.Memory.Switch = cost.Work{Each: 1e-6, Byte: 1e-9}, 1e-7
	const bytes = 1000
	once := c.Copy.Of(bytes, false, 0)
	equal(t, once, seconds(t, p, grouped(t, 2, 2), c, bytes, 1))
	equal(t, 2*once+c.Memory.Switch, seconds(t, p, grouped(t, 2, 1), c, bytes, 1))
}

// In place, a copy of a block onto itself costs nothing, and a plan that cannot be pays for a copy.
func TestInPlaceCosts(t *testing.T) {
	p := &plan.Plan{Name: "copies", Split: 2, Chans: 1, Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 2},
		Alias: plan.InPlace, Program: func(int) plan.Program {
			copied := func(from, to int) plan.Step {
				return plan.Step{Kind: plan.Copy, Src: []plan.Ref{{Buf: plan.In, At: from, N: 1}},
					Dst: plan.Ref{Buf: plan.Out, At: to, N: 1}}
			}
			return plan.Program{Lanes: [][]plan.Step{{copied(0, 0), copied(0, 1), copied(1, 1)}}}
		}}
	on, c := grouped(t, 2, 2), wire()
	c.Copy.Byte = 1e-9
	run := func(inPlace bool) float64 {
		r, err := Run(p, Network(on, c), Options{Elements: 2000, Costs: c, On: on, InPlace: inPlace})
		require.NoError(t, err)
		return r.Makespan
	}
	equal(t, 3000e-9, run(false))
	equal(t, 1000e-9, run(true))
	p.Alias = 0
	equal(t, 3000e-9, run(false))
	equal(t, (2000+3000)*1e-9, run(true))
}

// Ranks of one host read each other's windows, and pay for the words and the bytes.
func TestWindowCosts(t *testing.T) {
	win, out := plan.Ref{Buf: plan.Win, N: 1}, plan.Ref{Buf: plan.Out, N: 1}
	p := exchange([2][]plan.Step{
		{{Kind: plan.Copy, Dst: win, Src: []plan.Ref{{Buf: plan.In, N: 1}}}, {Kind: plan.Signal, Peer: 1}},
		{{Kind: plan.Wait, Peer: 0}, {Kind: plan.Get, Peer: 0, Dst: out, Src: []plan.Ref{win}}},
	})
	p.Win, p.Flags, p.Needs = 1, 1, plan.Gets|plan.Puts
	own := p.Program
	p.Program = func(rank int) plan.Program {
		made := own(rank)
		made.Win = []plan.Extent{{}}
		return made
	}
	c := wire()
	c.Copy = cost.Work{Byte: 1e-9}
	c.Windows = cost.Windows{Signal: 1e-6, Latency: 2e-6, Wait: 3e-6, Read: cost.Work{Each: 4e-6, Byte: 2e-9}}
	const bytes = 1000
	equal(t, 2*1e-9*bytes+1e-6+2e-6+3e-6+4e-6+2e-9*bytes, seconds(t, p, grouped(t, 2, 2), c, bytes, 1))

	// Without the bound, the first rank runs ahead.
	on := grouped(t, 2, 2)
	free := seconds(t, p, on, c, bytes, 20)
	r, err := Run(p, Network(on, c), Options{Elements: bytes, Costs: c, On: on, Calls: 20, Ahead: 1})
	require.NoError(t, err)
	require.Greater(t, r.Makespan, free*1.2)
}

// A few ranks stand for all, where each rank has a core.
func TestCostsOfSymmetricPlans(t *testing.T) {
	c := wire()
	c.Network.Latency = 3e-6
	c.Network.Send, c.Network.Receive = cost.Work{Each: 1e-6, Byte: 0.2e-9}, cost.Work{Each: 1e-6, Byte: 0.3e-9}
	c.Reduce = cost.Work{Byte: 0.1e-9}
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll} {
		for _, a := range algo.For(coll) {
			on := grouped(t, 8, 0)
			p, err := a.OnHosts(plan.Spec{Coll: coll, Ranks: 8}, on)
			if err != nil || p.Needs&plan.Gets != 0 || a.Name == "hierarchical" {
				continue // of hierarchical, rounding alone has messages meet that do not meet otherwise
			}
			network := Network(on, c)
			o := Options{Elements: 1 << 20, Costs: c, On: on, Calls: 3}
			few, err := Run(p, network, o)
			require.NoError(t, err)
			o.Full = true
			all, err := Run(p, network, o)
			require.NoError(t, err)
			require.InEpsilon(t, all.Makespan, few.Makespan, 1e-9, "%v/%s by %d", coll, a.Name, few.Simulated)
			require.Equal(t, all.Bytes, few.Bytes, a.Name)
			require.Equal(t, 8, all.Simulated)
		}
	}
}

func TestCostsOfFourThousandRanks(t *testing.T) {
	const n = 4096
	c := wire()
	c.Network.Latency = 5e-6
	c.Network.Send, c.Network.Receive = cost.Work{Each: 1e-6}, cost.Work{Each: 1e-6}
	on := grouped(t, n, 0)
	begun := time.Now()
	r, err := Run(build(t, dtype.AllReduce, "ring", n), Network(on, c), Options{Elements: 1 << 30, Costs: c, On: on})
	require.NoError(t, err)
	require.Equal(t, 1, r.Simulated)
	require.InEpsilon(t, 2*float64(1<<30)/1e9, r.Makespan, 0.2)
	t.Logf("%v", time.Since(begun))
}

// What another core has touched, and what a core's cache does not hold, costs more.
func TestCachesCost(t *testing.T) {
	const bytes = 1000
	c := wire()
	c.Memory.Send, c.Memory.Receive = cost.Work{Byte: 1e-9, Far: 2e-9, Miss: 4e-9}, cost.Work{Byte: 1e-9, Far: 3e-9}
	equal(t, 2*(3e-9+4e-9)*bytes, seconds(t, pingPong(), grouped(t, 2, 2), c, bytes, 1), "on two cores")
	equal(t, 2*(1e-9+1e-9)*bytes, seconds(t, pingPong(), grouped(t, 2, 1), c, bytes, 1), "on one")
	// A rank touches three blocks: its own, and a block of each rank.
	c.Cache = 3 * bytes
	equal(t, 2*(3e-9+4e-9)*bytes, seconds(t, pingPong(), grouped(t, 2, 2), c, bytes, 1), "all is in the cache")
	c.Cache = 3 * bytes / 2
	equal(t, 2*(3e-9+4e-9/2+4e-9)*bytes, seconds(t, pingPong(), grouped(t, 2, 2), c, bytes, 1), "half of it is")
}

// A core whose ranks all wait turns from one to the next, so the one that can go on may have to
// wait until it is its turn.
func TestCoresTurn(t *testing.T) {
	c := wire()
	c.Memory.Latency, c.Memory.Switch = 9e-6, 4e-6
	// Both ranks are on one core. While the message is on its way, it has turned to rank 1 and to
	// rank 0 again when the message comes.
	p := exchange([2][]plan.Step{{sends(0)}, {takes(1)}})
	equal(t, 9e-6+4e-6, seconds(t, p, grouped(t, 2, 1), c, 64, 1))
}

func TestLongSimulation(t *testing.T) {
	on, c := grouped(t, 2, 0), wire()
	o := Options{Elements: 1000, Costs: c, On: on, Calls: 100, Most: 200}
	_, err := Run(pingPong(), Network(on, c), o)
	require.ErrorIs(t, err, ErrLong)
	o.Calls = 10
	_, err = Run(pingPong(), Network(on, c), o)
	require.NoError(t, err)
}

func TestCostsAreChecked(t *testing.T) {
	on, c := grouped(t, 2, 2), wire()
	p := pingPong()
	for name, o := range map[string]Options{
		"no group":      {Costs: c},
		"another group": {Costs: c, On: grouped(t, 3, 3)},
		"a placement":   {Costs: c, On: on, Placement: []int{1, 0}},
		"negative":      {Costs: c, On: on, Calls: -1},
		"no fragments":  {Costs: &cost.Table{Network: c.Network}, On: on},
	} {
		_, err := Run(p, Network(on, c), o)
		require.ErrorContains(t, err, "simulating plan", name)
	}
}
