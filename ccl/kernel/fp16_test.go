package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// roundedOnce returns the F16 nearest to v, which is exact and no NaN: the result of half-precision
// arithmetic.
func roundedOnce(v float64) uint16 {
	u := math.Float64bits(v)
	sign, m := uint16(u>>48&0x8000), u&^(1<<63)
	if m < math.Float64bits(0x1p-14) { // the last place of 2²⁸ is that of a subnormal
		return sign | uint16(math.Float64bits(math.Float64frombits(m)+0x1p28)-math.Float64bits(0x1p28))
	}
	if m >= math.Float64bits(65520) {
		return sign | 0x7c00
	}
	return sign | uint16((m-1008<<52+1<<41-1+m>>42&1)>>42)
}

// hardF16 returns all subnormals, with both signs in turn, and the ends of every range of
// exponents.
func hardF16() []uint16 {
	var all []uint16
	for u := range uint16(1024) {
		all = append(all, u|u<<15)
	}
	for exponent := uint16(1); exponent < 31; exponent++ {
		for _, fraction := range []uint16{0, 1, 0x1ff, 0x200, 0x201, 0x3fe, 0x3ff} {
			all = append(all, exponent<<10|fraction|(exponent+fraction)<<15)
		}
	}
	return append(all, 0x8000, 0x7c00, 0xfc00)
}

// Other paths compute F16 in F32 and then round; AVX512-FP16 rounds once. The results are the same,
// since the 24 bits of F32 are not fewer than twice 11 bits and two. The test combines every F16
// that is a number with the hard ones.
func TestTwoRoundingsOfF16AreOne(t *testing.T) {
	var values [1 << 16]float64
	a, b, got := newGuarded(2<<16, 0), newGuarded(2<<16, 0), newGuarded(2<<16, 0)
	for u := range values {
		values[u] = formats[dtype.F16].float(uint64(u))
		store(a.data[2*u:], 2, uint64(u))
	}
	others := hardF16()
	if testing.Short() {
		r := rand.New(rand.NewPCG(41, 42))
		r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		others = others[:len(others)/16]
	}
	for _, other := range others {
		y := values[other]
		for u := range values {
			b.data[2*u], b.data[2*u+1] = byte(other), byte(other>>8)
		}
		for _, op := range []dtype.Op{dtype.Sum, dtype.Prod} {
			For(dtype.F16, op)(got.pointer(), a.pointer(), b.pointer(), len(values))
			for u, x := range values {
				v := x + y // exact: at most 41 bits
				if op == dtype.Prod {
					v = x * y
				}
				if v != v { // NaN has a rule of its own
					continue
				}
				is := uint16(got.data[2*u]) | uint16(got.data[2*u+1])<<8
				if want := roundedOnce(v); is != want {
					t.Fatalf("%v of %#x and %#x by %v is %#x, rounded once it is %#x", op, u, other, bestISA, is, want)
				}
			}
		}
	}
}

func TestRoundedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	for range 100_000 {
		v := math.Ldexp(1+r.Float64(), r.IntN(50)-30)
		require.Equal(t, formats[dtype.F16].round(v), uint64(roundedOnce(v)), "%v", v)
	}
	for u := range 0x7c00 { // the values, and the middles between two of them
		v, next := formats[dtype.F16].float(uint64(u)), magnitudes[formats[dtype.F16]][u+1]
		require.Equal(t, uint16(u), roundedOnce(v))
		require.Equal(t, uint16(u+u&1), roundedOnce((v+next)/2))
	}
}
