package p2p

import "math/rand/v2"

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
			w.send(a, b, uint64(tag), size)
		case 2:
			w.recv(a, b, uint64(tag), size)
		case 3:
			if rng.IntN(2) == 0 {
				b = AnySource
			}
			w.recv(a, b, uint64(tag), size)
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
