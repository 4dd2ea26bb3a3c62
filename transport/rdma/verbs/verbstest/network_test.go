package verbstest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// newNetwork makes one that must have neither reports nor leaks at the end of a test, unless the
// test has forgotten them.
func newNetwork(t *testing.T, o Options) *Network {
	n := New(o)
	t.Cleanup(func() {
		n.Check(t)
		for _, left := range n.Leaks() {
			t.Error("not closed: " + left)
		}
		n.Close()
	})
	return n
}

// TestConformance runs the suite on networks of several kinds.
func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name string
		peer int
		o    Options
	}{
		{"TwoHosts", 1, Options{Seed: 1}},
		{"OneHost", 0, Options{Seed: 2, Hosts: 1}},
		{"InfiniBand", 1, Options{Seed: 3, InfiniBand: true}},
		{"NoDelay", 1, Options{Seed: 4, Delay: -1, Adapters: 2, Ports: 2}},
		{"NoInline", 1, Options{Seed: 5, Inline: -1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			Run(t, func(t *testing.T) (a, b verbs.Library) {
				n := newNetwork(t, tt.o)
				return n.Host(0), n.Host(tt.peer)
			}, Lacks{})
		})
	}
}

// TestSeed: the same seed gives the same order of what several pairs have posted, and another one
// another.
func TestSeed(t *testing.T) {
	order := func(seed uint64) (arrived []uint32) {
		n, b := two(t, Options{Seed: seed, Patience: patience})
		n.Cut(0, 1)
		b.b.receive(30)
		for i := range uint32(3) {
			pa, _ := b.connected()
			for k := range uint32(10) {
				b.a.post(pa, b.a.tell(b.b, 0, int(k), 100*i+k))
			}
		}
		n.Heal(0, 1)
		for _, c := range b.b.poll(30) {
			arrived = append(arrived, c.Immediate)
		}
		b.a.poll(30)
		return arrived
	}
	first := order(1)
	require.Equal(t, first, order(1))
	require.NotEqual(t, first, order(2))
}

// TestSeeds runs the tests in which order matters with many seeds.
func TestSeeds(t *testing.T) {
	for seed := range uint64(5) {
		for name, run := range map[string]func(*testing.T, *bench){
			"Order": testOrder, "SharedReceives": testSharedReceives, "WaitsForReceives": testWaitsForReceives,
			"ArmedLate": testArmedLate, "Fail": testFail, "Traffic": testTraffic,
		} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				n := newNetwork(t, Options{Seed: seed})
				run(t, newBench(t, n.Host(0), n.Host(1)))
			})
		}
	}
}
