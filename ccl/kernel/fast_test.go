package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// flushed returns the sum that Fast promises: that of all other kernels, but 0 where it is
// subnormal.
func flushed(a, b uint64) uint64 {
	sum := reference(dtype.BF16, dtype.Sum, a, b)
	f := formats[dtype.BF16]
	exact := math.Abs(f.float(a) + f.float(b))
	if !f.nan(a) && !f.nan(b) && exact < 0x1p-126 {
		sum &= f.sign()
	}
	return sum
}

func TestFastIsForSumsOfBF16WithTheHardware(t *testing.T) {
	for _, ty := range append(dtype.Types(), dtype.Invalid, 200) {
		for _, op := range append(dtype.Ops(), 200) {
			has := HasFastBF16() && ty == dtype.BF16 && (op == dtype.Sum || op == dtype.Avg || op == dtype.PremulSum)
			f := Fast(ty, op)
			require.Equal(t, has, f != nil, "%v of %v", op, ty)
			if has {
				require.NotEqual(t, kernelOf(For(ty, op)), kernelOf(f.Pair))
			}
		}
	}
	if !haveAssembly {
		require.False(t, HasFastBF16())
	}
}

func fast(t *testing.T) *FastKernels {
	f := Fast(dtype.BF16, dtype.Sum)
	if f == nil {
		t.Skip("no AVX512_BF16")
	}
	return f
}

func TestFastSumsRoundAndFlush(t *testing.T) {
	f := fast(t)
	r := rand.New(rand.NewPCG(31, 32))
	check := func(o operands, n int) {
		inA, inB := bytes.Clone(o.a.data), bytes.Clone(o.b.data)
		f.Pair(o.dst.pointer(), o.a.pointer(), o.b.pointer(), n)
		for i := range n {
			a, b := load(inA[2*i:], 2), load(inB[2*i:], 2)
			if want, got := flushed(a, b), load(o.dst.data[2*i:], 2); want != got {
				t.Fatalf("%s, n %d, element %d: %#x and %#x gave %#x, want %#x", o.way, n, i, a, b, got, want)
			}
		}
		require.NoError(t, o.broken())
	}
	for _, n := range append(someLengths(r, 2), 1<<18) {
		check(newOperands(r, dtype.BF16, n), n)
	}
	for range 8 { // every value against a few others
		o := operands{newGuarded(2<<16, 0), newGuarded(2<<16, 0), newGuarded(2<<16, 0), "apart"}
		other := interesting(r, dtype.BF16)
		for u := range 1 << 16 {
			store(o.a.data[2*u:], 2, uint64(u))
			store(o.b.data[2*u:], 2, other)
		}
		check(o, 1<<16)
	}
	require.Equal(t, uint64(0x8000), flushed(0x8001, 0x0000))
}

func TestFastFoldsAndMeansEqualFastPairs(t *testing.T) {
	f := fast(t)
	r := rand.New(rand.NewPCG(33, 34))
	for _, k := range []int{1, 2, 3, 4, 5, 7, 8, 9, 13} {
		for _, n := range []int{0, 1, 31, 32, 33, 700, foldBytes/2 + 41} {
			src := make([]unsafe.Pointer, k)
			for i := range src {
				g := newGuarded(2*n, 2*r.IntN(32))
				fill(r, dtype.BF16, g.data)
				src[i] = g.pointer()
			}
			want, got := newGuarded(2*n, 0), newGuarded(2*n, 2*r.IntN(32))
			copyBytes(want.pointer(), src[0], 2*n)
			for _, p := range src[1:] {
				f.Pair(want.pointer(), want.pointer(), p, n)
			}
			f.Many(got.pointer(), src, n)
			require.Equal(t, -1, mismatch(want.data, got.data), "%d sources, n %d", k, n)
			require.NoError(t, got.broken())
			if k == 2 {
				Scale(dtype.BF16)(want.pointer(), want.pointer(), n, 1.0/3)
				f.Mean(got.pointer(), src[0], src[1], n, 1.0/3)
				require.Equal(t, -1, mismatch(want.data, got.data), "mean, n %d", n)
			}
		}
	}
	a, b := newGuarded(600, 0), newGuarded(600, 0)
	src := []unsafe.Pointer{a.pointer(), b.pointer(), a.pointer(), b.pointer(), a.pointer()}
	require.Zero(t, testing.AllocsPerRun(3, func() {
		f.Pair(a.pointer(), a.pointer(), b.pointer(), 300)
		f.Many(a.pointer(), src, 300)
		f.Mean(a.pointer(), a.pointer(), b.pointer(), 300, 0.5)
	}))
}

// BenchmarkFastBF16 compares the hardware's conversions with the usual kernel.
func BenchmarkFastBF16(b *testing.B) {
	f := Fast(dtype.BF16, dtype.Sum)
	if f == nil {
		b.Skip("no AVX512_BF16")
	}
	for _, s := range []struct {
		name  string
		bytes int
	}{{"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"4MiB", 4 << 20}} {
		b.Run(s.name+"/usual", func(b *testing.B) {
			benchReduction(b, For(dtype.BF16, dtype.Sum), dtype.BF16, s.bytes, 0)
		})
		b.Run(s.name+"/fast", func(b *testing.B) { benchReduction(b, f.Pair, dtype.BF16, s.bytes, 0) })
		for _, k := range []int{4, 8} {
			src := make([]unsafe.Pointer, k)
			for i := range src {
				g := newGuarded(s.bytes, 0)
				plain(dtype.BF16, g.data)
				src[i] = g.pointer()
			}
			of := func(f ReduceFunc) Func { return func(dst, _, _ unsafe.Pointer, n int) { f(dst, src, n) } }
			b.Run(s.name+"/"+string(rune('0'+k))+"sources/usual", func(b *testing.B) {
				benchReduction(b, of(Reduce(dtype.BF16, dtype.Sum)), dtype.BF16, s.bytes, 0)
			})
			b.Run(s.name+"/"+string(rune('0'+k))+"sources/fast", func(b *testing.B) {
				benchReduction(b, of(f.Many), dtype.BF16, s.bytes, 0)
			})
		}
	}
}
