package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo/network"
)

// messages returns a plan in which some ranks send a block to another, all at once.
func messages(ranks int, to map[int]int) *plan.Plan {
	lanes := map[int][][]plan.Step{}
	for from, at := range to {
		lanes[from] = append(lanes[from], one(send(at, 1))...)
		lanes[at] = append(lanes[at], one(recv(from, 1))...)
	}
	return hand(ranks, lanes)
}

// TestLatencyOfEachHop: a message costs the startup, the alpha of every link of its path, and the
// transfer of its bytes once.
func TestLatencyOfEachHop(t *testing.T) {
	wire, slow := network.Wire{Alpha: 1, Bandwidth: 100}, network.Wire{Alpha: 10, Bandwidth: 50}
	for name, c := range map[string]struct {
		topology *network.Topology
		from, to int
		want     float64
	}{
		"uniform":                {network.Uniform(8, wire), 0, 5, 1 + 2},
		"nvlink, two halves":     {network.NVLink(8, wire), 0, 5, 1 + 2},
		"ring, 3 hops":           {network.Ring(8, wire), 0, 3, 3 + 2},
		"ring, the other way":    {network.Ring(8, wire), 0, 6, 2 + 2},
		"torus, 2 and 1 hops":    {network.Torus([]int{4, 4}, wire), 0, 6, 3 + 2},
		"torus, around":          {network.Torus([]int{4, 4, 4}, wire), 0, 63, 3 + 2},
		"pcie, one switch":       {network.PCIe(8, wire, slow), 0, 1, 2 + 2},
		"pcie, one socket":       {network.PCIe(8, wire, slow), 0, 2, 4 + 2},
		"pcie, two sockets":      {network.PCIe(8, wire, slow), 0, 7, 4 + 10 + 4},
		"fat tree, one leaf":     {network.FatTree(16, 4, 2, wire), 0, 3, 2 + 2},
		"fat tree, two leaves":   {network.FatTree(16, 4, 2, wire), 0, 4, 4 + 2},
		"dragonfly, one router":  {network.Dragonfly(3, 2, 2, wire, slow), 0, 1, 2 + 2},
		"dragonfly, one group":   {network.Dragonfly(3, 2, 2, wire, slow), 0, 2, 3 + 2},
		"dragonfly, two groups":  {network.Dragonfly(3, 2, 2, wire, slow), 0, 4, 2 + 10 + 1 + 4},
		"rail, one host":         {network.Rail(4, 2, wire, slow), 0, 1, 1 + 2},
		"rail, one rail":         {network.Rail(4, 2, wire, slow), 0, 6, 10 + 4},
		"rail, through the host": {network.Rail(4, 2, wire, slow), 0, 7, 20 + 4},
	} {
		for _, startup := range []float64{0, 5} {
			at := *c.topology
			at.Startup += startup
			r := simulate(t, messages(c.topology.Ranks(), map[int]int{c.from: c.to}), &at, Options{Elements: 200})
			equal(t, c.want+startup, r.Makespan, name)
		}
	}
}

// TestFlowsShareWhatTheyMeetAt: two GPUs under a PCIe switch share its uplink; flows in opposite
// directions share nothing.
func TestFlowsShareWhatTheyMeetAt(t *testing.T) {
	pcie := network.PCIe(8, network.Wire{Bandwidth: 100}, network.Wire{Bandwidth: 40})
	o := Options{Elements: 200}
	equal(t, 4, simulate(t, messages(8, map[int]int{0: 2, 1: 3}), pcie, o).Makespan, "half each")
	equal(t, 2, simulate(t, messages(8, map[int]int{0: 2, 3: 1}), pcie, o).Makespan, "one up, one down")
	equal(t, 2, simulate(t, messages(8, map[int]int{0: 1, 1: 0}), pcie, o).Makespan, "below the switch")
	r := simulate(t, messages(8, map[int]int{0: 4, 2: 6, 1: 3}), pcie, o)
	equal(t, 10, r.Makespan, "two share 40 between the sockets")
	equal(t, 2.5, r.Finish[1], "the third has what the first leaves of the uplink: 80")
	ring := network.Ring(8, network.Wire{Bandwidth: 100})
	r = simulate(t, messages(8, map[int]int{0: 3, 2: 4, 5: 6}), ring, o)
	equal(t, 4, r.Finish[0], "they meet between 2 and 3")
	equal(t, 4, r.Finish[2])
	equal(t, 2, r.Finish[5])
}

// TestOversubscription: if all ranks of one leaf send to another leaf, they take as many times
// longer as ranks share an uplink, provided that the hash spreads them evenly; inside a leaf
// nothing changes.
func TestOversubscription(t *testing.T) {
	const leaf, alpha, bandwidth, m = 8, 1e-6, 25e9, 1 << 26
	for _, over := range []int{1, 2, 4, 8} {
		topology := network.FatTree(4*leaf, leaf, over, network.Wire{Alpha: alpha, Bandwidth: bandwidth})
		router, err := network.NewRouter(topology)
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(1, 2))
		to := map[int]int{}
		for balanced := false; !balanced; {
			uses := map[int32]int{}
			balanced = true
			for from, at := range random.Perm(leaf) {
				to[from] = leaf + at
				path, err := router.Route(nil, from, to[from])
				require.NoError(t, err)
				uses[path[1]]++
				balanced = balanced && uses[path[1]] <= over
			}
		}
		for i := 2 * leaf; i < 3*leaf; i++ {
			to[i] = 2*leaf + (i+1)%leaf
		}
		r := simulate(t, messages(4*leaf, to), topology, Options{Elements: m})
		for i := range leaf {
			equal(t, 4*alpha+float64(over)*m/bandwidth, r.Finish[i], over)
			equal(t, 2*alpha+m/bandwidth, r.Finish[2*leaf+i], over)
		}
	}
}

// TestRailsBeatTheRing: a flat ring leaves a host through one NIC, the hierarchy through all, and
// in fewer steps.
func TestRailsBeatTheRing(t *testing.T) {
	const hosts, gpus = 16, 8
	inside, nic := network.Wire{Alpha: 1e-6, Bandwidth: 450e9}, network.Wire{Alpha: 5e-6, Bandwidth: 50e9}
	topology := network.Rail(hosts, gpus, inside, nic)
	ring := build(t, dtype.AllReduce, "ring", hosts*gpus)
	a, err := algo.Find(dtype.AllReduce, "hierarchical.ring.ring")
	require.NoError(t, err)
	rails, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: hosts * gpus, Shape: plan.Shape{gpus, hosts}})
	require.NoError(t, err)
	for _, m := range []int{1 << 20, 1 << 26, 1 << 30} {
		o := Options{Elements: m}
		flat, railed := simulate(t, ring, topology, o), simulate(t, rails, topology, o)
		within := AllReduceRing(Cost{Alpha: inside.Alpha, Beta: 1 / inside.Bandwidth}, gpus, float64(m))
		across := AllReduceRing(Cost{Alpha: nic.Alpha, Beta: 1 / nic.Bandwidth}, hosts, float64(m)/gpus)
		equal(t, within+across, railed.Makespan, "the two levels one after the other")
		least := 2 * rest(hosts*gpus) * float64(m) / nic.Bandwidth
		require.Greater(t, flat.Makespan, least)
		require.Less(t, railed.Makespan, flat.Makespan)
	}
	// On one host there is nothing to gain, and the steps are the same.
	alone, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: gpus, Shape: plan.Shape{gpus, 1}})
	require.NoError(t, err)
	o := Options{Elements: 1 << 26}
	equal(t, simulate(t, build(t, dtype.AllReduce, "ring", gpus), topology, o).Makespan,
		simulate(t, alone, topology, o).Makespan)
}

// furthest returns the largest difference between two numbers at the same index.
func furthest(a, b []float64) float64 {
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}

// TestSharedProgramsEqualTheirOwn: if programs repeat but the network does not, ranks share
// programs, and paths that no other lane uses are excluded from the sharing. The result equals that
// of the full simulation, on each kind of network.
func TestSharedProgramsEqualTheirOwn(t *testing.T) {
	wire, fast := network.Wire{Alpha: 1e-6, Bandwidth: 25e9}, network.Wire{Alpha: 1e-7, Bandwidth: 450e9}
	for _, topology := range []*network.Topology{
		network.NVLink(256, fast), network.PCIe(256, wire, fast), network.Ring(256, wire),
		network.Torus([]int{16, 16}, wire), network.FatTree(256, 32, 1, wire),
		network.FatTree(256, 32, 4, wire), network.FatTree(256, 24, 3, wire), network.Dragonfly(8, 8, 4, wire, fast),
		network.Rail(32, 8, fast, wire),
	} {
		for name, shape := range map[string]plan.Shape{"ring": {}, "hierarchical": {8, 32},
			"hierarchical.ring.halving.ring": {8, 4, 8}} {
			a, err := algo.Find(dtype.AllReduce, name)
			require.NoError(t, err)
			p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 256, Shape: shape})
			require.NoError(t, err)
			shared := simulate(t, p, topology, Options{Elements: 1 << 20})
			own := simulate(t, p, topology, Options{Elements: 1 << 20, Full: true})
			what := fmt.Sprintf("%s on %s", name, topology.Name)
			equal(t, own.Makespan, shared.Makespan, what)
			require.Equal(t, own.Messages, shared.Messages, what)
			require.Equal(t, own.LinkBytes, shared.LinkBytes, what)
			require.Equal(t, own.Received, shared.Received, what)
			require.LessOrEqual(t, furthest(own.Finish, shared.Finish), 1e-9*own.Makespan, what)
			require.LessOrEqual(t, furthest(own.LinkBusy, shared.LinkBusy), 1e-9*own.Makespan, what)
		}
	}
}
