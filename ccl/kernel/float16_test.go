package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

type conversion struct {
	format
	widen  func(uint16) float32
	narrow func(float32) uint16
}

var conversions = map[string]conversion{
	"f16":  {formats[dtype.F16], widenF16, narrowF16},
	"bf16": {formats[dtype.BF16], widenBF16, narrowBF16},
}

// narrowed returns the correct result of narrow for the bits of an F32.
func (c conversion) narrowed(u uint32) uint16 {
	single := formats[dtype.F32]
	if !single.nan(uint64(u)) {
		return uint16(c.round(single.float(uint64(u))))
	}
	payload := uint64(u) & (1<<23 - 1) >> (23 - c.fraction)
	return uint16(uint64(u>>31)*c.sign() | c.infinity() | c.quiet() | payload)
}

func TestEveryHalfWidensExactlyAndComesBack(t *testing.T) {
	for name, c := range conversions {
		for u := range 1 << 16 {
			h := uint16(u)
			got := c.widen(h)
			if c.nan(uint64(h)) {
				payload := uint32(h) & (1<<c.fraction - 1) << (23 - c.fraction)
				want := uint32(h>>15)<<31 | 0xff<<23 | payload
				require.Equal(t, want, math.Float32bits(got), "%s %#x", name, h)
				require.Equal(t, h|uint16(c.quiet()), c.narrow(got), "%s %#x", name, h)
				continue
			}
			if want := float32(c.float(uint64(h))); math.Float32bits(want) != math.Float32bits(got) {
				t.Fatalf("%s %#x widens to %v, want %v", name, h, got, want)
			}
			if back := c.narrow(got); back != h {
				t.Fatalf("%s %#x comes back as %#x", name, h, back)
			}
		}
	}
}

// Rounding can only go wrong at a value, at the middle between two values, and at their neighbours.
func TestNarrowRoundsToNearestEven(t *testing.T) {
	for name, c := range conversions {
		check := func(u uint32) {
			if want, got := c.narrowed(u), c.narrow(math.Float32frombits(u)); want != got {
				t.Fatalf("%s: F32 %#08x narrows to %#x, want %#x", name, u, got, want)
			}
		}
		for h := range uint16(c.infinity()) + 1 {
			middle := float32(magnitudes[c.format][h])
			if int(h) < int(c.infinity()) {
				middle = float32(magnitudes[c.format][h]/2 + magnitudes[c.format][h+1]/2)
			}
			for _, u := range []uint32{math.Float32bits(c.widen(h)), math.Float32bits(middle)} {
				for _, near := range []uint32{u - 1, u, u + 1} {
					check(near)
					check(near ^ 1<<31)
				}
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 200_000 {
			check(r.Uint32())
		}
	}
}

func TestRoundToOddNeedsNoSecondThought(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, c := range conversions {
		all := magnitudes[c.format]
		for range 300_000 {
			h := r.IntN(len(all) - 1)
			v := []float64{all[h], all[h]/2 + all[h+1]/2, math.Float64frombits(r.Uint64())}[r.IntN(3)]
			if math.IsNaN(v) {
				continue
			}
			v = math.Float64frombits(math.Float64bits(v) + uint64(r.IntN(3)) - 1)
			if math.IsNaN(v) {
				continue
			}
			if want, got := uint16(c.round(v)), c.narrow(roundToOdd(v)); want != got {
				t.Fatalf("%s: %v rounds to %#x, want %#x", name, v, got, want)
			}
		}
	}
}
