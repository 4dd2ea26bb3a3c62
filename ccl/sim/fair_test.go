package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// fairRates is progressive filling, written as it is defined: all rates rise together until a link
// is full.
func fairRates(n *links, active []int32) map[int32]float64 {
	rates, spare := map[int32]float64{}, make([]float64, len(n.pipes))
	for i := range n.pipes {
		spare[i] = n.pipes[i].bandwidth
	}
	open := map[int32]bool{}
	for _, id := range active {
		open[id] = true
	}
	for len(open) > 0 {
		crossings := make([]float64, len(n.pipes))
		for id := range open {
			for _, h := range n.paths[n.flows[id].path].hops {
				crossings[h.link] += float64(h.times)
			}
		}
		step := math.Inf(1)
		for l, c := range crossings {
			if c > 0 {
				step = min(step, spare[l]/c)
			}
		}
		for l, c := range crossings {
			spare[l] -= c * step
		}
		for id := range open {
			rates[id] += step
		}
		for id := range open {
			for _, h := range n.paths[n.flows[id].path].hops {
				if spare[h.link] <= 1e-12*n.pipes[h.link].bandwidth {
					delete(open, id)
					break
				}
			}
		}
	}
	return rates
}

// TestRatesStayFair lets flows come and go, one or many at a time, and compares the rates with
// those recomputed for all flows.
func TestRatesStayFair(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 7))
		n := &links{queue: newQueue()}
		for range 4 + random.IntN(30) {
			bandwidth := 100.0
			if seed%3 > 0 {
				bandwidth = []float64{10, 25, 40, 100, 1e4}[random.IntN(5)]
			}
			n.pipes = append(n.pipes, pipe{bandwidth: bandwidth})
		}
		n.parts = make([]share, len(n.pipes))
		for range 40 {
			way := path{limit: math.Inf(1)}
			for _, l := range random.Perm(len(n.pipes))[:1+random.IntN(4)] {
				times := int32(1)
				if seed%2 > 0 {
					times += random.Int32N(3)
				}
				way.hops = append(way.hops, hop{int32(l), times})
				if limit := n.pipes[l].bandwidth / float64(times); limit < way.limit {
					way.limit, way.bound = limit, int32(l)
				}
			}
			n.paths = append(n.paths, way)
		}
		var active []int32
		for step := range 200 {
			for range 1 + random.IntN(1+step%7*3) {
				if len(active) > 0 && (random.IntN(2) == 0 || len(active) > 60) {
					k := random.IntN(len(active))
					if n.flows[active[k]].rate == 0 {
						continue // it has only just begun
					}
					n.end(active[k], float64(step))
					n.free = append(n.free, active[k])
					active[k] = active[len(active)-1]
					active = active[:len(active)-1]
					continue
				}
				id := n.newFlow()
				n.flows[id].path, n.flows[id].left = random.Int32N(int32(len(n.paths))), 1<<40
				n.begin(id, 0, float64(step))
				active = append(active, id)
			}
			n.share(float64(step))
			for id, want := range fairRates(n, active) {
				require.InEpsilon(t, want, n.flows[id].rate, 1e-9, "seed %d, step %d, flow %d", seed, step, id)
			}
		}
	}
}

// TestChangeTravels has a flow on links i and i+1 for each i, each of them held back where it meets
// the one before it. When the first goes faster, the second goes slower, so the third goes faster,
// and so on to the end of the row.
func TestChangeTravels(t *testing.T) {
	const flows = 3 * maxGrowth
	n := &links{queue: newQueue()}
	add := func(bandwidth float64) { n.pipes = append(n.pipes, pipe{bandwidth: bandwidth}) }
	way := func(links ...int32) {
		p := path{limit: math.Inf(1)}
		for _, l := range links {
			p.hops = append(p.hops, hop{l, 1})
			if b := n.pipes[l].bandwidth; b < p.limit {
				p.limit, p.bound = b, l
			}
		}
		n.paths = append(n.paths, p)
	}
	add(1.4)
	for i := 1; i < flows; i++ {
		add(float64(2*i + 1))
	}
	add(1e6)
	add(0.4)
	n.parts = make([]share, len(n.pipes))
	var active []int32
	for i := range flows + 1 {
		if i < flows {
			way(int32(i), int32(i+1))
		} else {
			way(0, flows+1) // the flow that will leave
		}
		id := n.newFlow()
		n.flows[id].path, n.flows[id].left = int32(i), 1<<40
		n.begin(id, 0, 0)
		n.share(0)
		active = append(active, id)
	}
	for i, id := range active[:flows] {
		require.InEpsilon(t, float64(i+1), n.flows[id].rate, 1e-9)
	}
	n.end(active[flows], 1)
	n.share(1)
	for i, id := range active[:flows] {
		require.InEpsilon(t, float64(i+1)+0.4*math.Pow(-1, float64(i)), n.flows[id].rate, 1e-9)
		require.InEpsilon(t, fairRates(n, active[:flows])[id], n.flows[id].rate, 1e-9)
	}
}
