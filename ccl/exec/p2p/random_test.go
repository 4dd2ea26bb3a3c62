//go:build !race

package p2p

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRandomTraffic compares the engines with the reference matcher: which message each receive
// gets, the bytes of that message, and what is left over. One thread does all of it, so the race
// detector is left out.
func TestRandomTraffic(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomTraffic(t, uint64(seed)) })
	}
}

func randomTraffic(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	capacities := []int{64, 640, 16 << 10, 1 << 20}
	w := newWorld(t, 2+rng.IntN(4), 1+rng.IntN(8), capacities[rng.IntN(len(capacities))], rng)
	if seed%5 > 1 {
		w.far(rng)
	}
	traffic(w, rng, seed%3 == 1, seed%2 == 1)
}
