package verify

import (
	"math/rand/v2"
	"testing"
)

// TestPairTable compares a pairTable with a map, on small ranges of numbers, so that most pairs
// recur, and on a large range.
func TestPairTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for _, most := range []int32{3, 40, 1 << 30} {
		var p pairTable
		want := map[[2]int32]int32{}
		for i := range int32(5000) {
			a, b := rng.Int32N(most), rng.Int32N(most)-2
			if got := p.get(a, b); got != want[[2]int32{a, b}] {
				t.Fatalf("%d, %d is mapped to %d, want %d", a, b, got, want[[2]int32{a, b}])
			}
			if want[[2]int32{a, b}] == 0 {
				p.put(a, b, i+1)
				want[[2]int32{a, b}] = i + 1
			}
		}
		if p.count != len(want) {
			t.Errorf("%d pairs, want %d", p.count, len(want))
		}
		for k, v := range want {
			if p.get(k[0], k[1]) != v {
				t.Errorf("%v is mapped to %d, want %d", k, p.get(k[0], k[1]), v)
			}
		}
	}
}
