package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// pathsOf returns all implementations of a conversion, by name.
func pathsOf(dst, src dtype.Type) map[string]ConvertFunc {
	all := map[string]ConvertFunc{"chosen": Convert(dst, src), "go": genericConversion(dst, src)}
	for _, i := range machineISAs {
		if f := vectorConversion(dst, src, i); f != nil {
			all[i.String()] = f
		}
	}
	return all
}

// referenceConvert converts one element, as bits.
func referenceConvert(dst, src dtype.Type, u uint64) uint64 {
	from, to := formats[src], formats[dst]
	if !from.nan(u) {
		return to.round(from.float(u))
	}
	sign := u >> (from.exponent + from.fraction) << (to.exponent + to.fraction)
	payload := u & (1<<from.fraction - 1)
	switch {
	case to.exponent+to.fraction == 7:
		return sign | (to.sign() - 1)
	case to.fraction < from.fraction:
		return sign | to.infinity() | to.quiet() | payload>>(from.fraction-to.fraction)
	case src == dtype.BF16:
		return sign | to.infinity() | payload<<(to.fraction-from.fraction)
	}
	return sign | to.infinity() | to.quiet() | payload<<(to.fraction-from.fraction)
}

// checkConversion compares every path with the reference for n elements of src.
func checkConversion(t *testing.T, r *rand.Rand, to, from dtype.Type, src guarded) {
	t.Helper()
	n := len(src.data) / from.Size()
	for name, f := range pathsOf(to, from) {
		dst := newGuarded(n*to.Size(), to.Size()*r.IntN(64/to.Size()))
		f(dst.pointer(), src.pointer(), n)
		for i := range n {
			u := load(src.data[i*from.Size():], from.Size())
			if want, got := referenceConvert(to, from, u), load(dst.data[i*to.Size():], to.Size()); want != got {
				t.Fatalf("%v to %v by %s, n %d, element %d: %#x gave %#x, want %#x", from, to, name, n, i, u, got, want)
			}
		}
		require.NoError(t, dst.broken())
		require.NoError(t, src.broken())
	}
}

func TestEveryShortFloatIsWidened(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, ty := range shorterFloats {
		size := ty.Size()
		src := newGuarded(size<<(8*size), size*r.IntN(7))
		for u := range 1 << (8 * size) {
			store(src.data[u*size:], size, uint64(u))
		}
		checkConversion(t, r, dtype.F32, ty, src)
	}
}

// The inputs are random, and where rounding can go wrong: the values of the short format, the
// middles between them, and the neighbours of these.
func TestF32IsNarrowed(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	for _, ty := range shorterFloats {
		all := magnitudes[formats[ty]]
		src := newGuarded(4*30_000, 4*r.IntN(7))
		for i := 0; i < len(src.data); i += 4 {
			u := r.Uint32()
			switch h := r.IntN(len(all) - 1); r.IntN(4) {
			case 0:
				u = math.Float32bits(float32(all[h])) + uint32(r.IntN(3)) - 1
			case 1:
				u = math.Float32bits(float32(all[h]/2+all[h+1]/2)) + uint32(r.IntN(3)) - 1
			case 2:
				u = uint32(interesting(r, dtype.F32))
			}
			store(src.data[i:], 4, uint64(u^uint32(r.IntN(2))<<31))
		}
		checkConversion(t, r, ty, dtype.F32, src)
	}
}

func TestConversionsOfEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	for _, short := range shorterFloats {
		for _, pair := range [][2]dtype.Type{{dtype.F32, short}, {short, dtype.F32}} {
			for _, n := range append(lengths(r), chunkElements+37) {
				src := newGuarded(n*pair[1].Size(), pair[1].Size()*r.IntN(9))
				fill(r, pair[1], src.data)
				checkConversion(t, r, pair[0], pair[1], src)
			}
		}
	}
}

const chunkElements = 64 << 10 // elements of a conversion in one call of assembly

func TestWhatConverts(t *testing.T) {
	for _, dst := range append(dtype.Types(), dtype.Invalid, 200) {
		for _, src := range append(dtype.Types(), dtype.Invalid, 200) {
			short := func(ty dtype.Type) bool { return ty == dtype.F16 || ty == dtype.BF16 || ty.Float8() }
			known := dst == dtype.F32 && short(src) || src == dtype.F32 && short(dst)
			f := Convert(dst, src)
			require.Equal(t, known, f != nil, "%v to %v", src, dst)
			if !known {
				continue
			}
			for _, i := range machineISAs {
				own := i != neon && !dst.Float8() && !src.Float8()
				require.Equal(t, own, vectorConversion(dst, src, i) != nil, "%v to %v by %v", src, dst, i)
				if own && i == bestISA {
					require.Equal(t, codeOf(vectorConversion(dst, src, i)), codeOf(f))
					require.NotEqual(t, codeOf(genericConversion(dst, src)), codeOf(f))
				}
			}
			f(nil, nil, 0)
			var from, to [600]float32
			require.Zero(t, testing.AllocsPerRun(3, func() { f(unsafe.Pointer(&to), unsafe.Pointer(&from), 300) }))
		}
	}
}

// BenchmarkConvert reports throughput in bytes of F32.
func BenchmarkConvert(b *testing.B) {
	for _, short := range shorterFloats {
		for _, pair := range [][2]dtype.Type{{dtype.F32, short}, {short, dtype.F32}} {
			for name, f := range pathsOf(pair[0], pair[1]) {
				b.Run(fmt.Sprintf("%vTo%v/%s", pair[1], pair[0], name), func(b *testing.B) {
					const n = 16 << 10
					src, dst := newGuarded(n*pair[1].Size(), 0), newGuarded(n*pair[0].Size(), 0)
					plain(pair[1], src.data)
					loop(b, 4*n, func() { f(dst.pointer(), src.pointer(), n) })
				})
			}
		}
	}
}
