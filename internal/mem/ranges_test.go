package mem_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/mem"
)

// No byte is given out twice, and when all is free again, it is one range again.
func TestRanges(t *testing.T) {
	const size = 1 << 12
	seeds := uint64(50)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 7))
		r, owner, taken := mem.NewRanges(size), make([]int, size), map[int]int{}
		for step := 1; step < 300; step++ {
			for at, bytes := range taken {
				if random.IntN(2) == 0 {
					break
				}
				r.Free(at, bytes)
				delete(taken, at)
				for i := range bytes {
					owner[at+i] = 0
				}
			}
			bytes, align := 1+random.IntN(size/8), 1<<random.IntN(8)
			at, ok := r.Take(bytes, align)
			if !ok {
				continue
			}
			require.Zero(t, at%align)
			for i := range bytes {
				require.Zero(t, owner[at+i], "seed %d", seed)
				owner[at+i] = step
			}
			taken[at] = bytes
		}
		for at, bytes := range taken {
			r.Free(at, bytes)
		}
		at, ok := r.Take(size, size)
		require.True(t, ok, "seed %d", seed)
		require.Zero(t, at)
		_, ok = r.Take(1, 1)
		require.False(t, ok)
	}
}
