package p2p

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRandomTraffic compares the engines with the reference matcher: which message each receive
// gets, the bytes of that message, and what is left over.
func TestRandomTraffic(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 15
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

func traffic(w *world, rng *rand.Rand, wrong, cancels bool) {
	ranks := len(w.engines)
	w.direct = rng
	sizes := []int{0, 1, EagerLimit - 1, EagerLimit, EagerLimit + 1, 100, 5000, FarLimit + 1}
	sizeOf := make([]int, 1+rng.IntN(5)) // a tag has one size, so that AnySource receives fit
	for i := range sizeOf {
		sizeOf[i] = sizes[rng.IntN(len(sizes))]
		if rng.IntN(8) == 0 {
			sizeOf[i] = 1 << 20
		}
	}
	big := 4 // messages of 1 MiB
	for range 40 + rng.IntN(300) {
		a, b, tag := rng.IntN(ranks), rng.IntN(ranks), rng.IntN(len(sizeOf))
		size := sizeOf[tag]
		if wrong && rng.IntN(30) == 0 {
			size = sizes[rng.IntN(len(sizes))]
		}
		switch rng.IntN(6) {
		case 0, 1:
			if size == 1<<20 {
				if big == 0 {
					continue
				}
				big--
			}
			w.send(a, b, uint32(tag), size)
		case 2:
			w.recv(a, b, uint32(tag), size)
		case 3:
			if rng.IntN(2) == 0 {
				b = AnySource
			}
			w.recv(a, b, uint32(tag), size)
		default:
			for range rng.IntN(8) {
				w.engines[rng.IntN(ranks)].Advance()
			}
		}
		if cancels && rng.IntN(10) == 0 && len(w.ops) > 0 {
			w.cancel(w.ops[rng.IntN(len(w.ops))])
		}
	}
	w.finish()
}
