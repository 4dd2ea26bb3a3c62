package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// isas returns the instruction sets that this machine can run, the loops in Go first.
func isas() []isa { return append([]isa{noISA}, machineISAs...) }

// pairWith and scaleWith return the kernel of an instruction set, or nil if it has none.
func pairWith(t dtype.Type, op dtype.Op, i isa) Func {
	if i == noISA {
		return genericReduction(t, op)
	}
	return vectorReduction(t, op, i)
}

func scaleWith(t dtype.Type, i isa) ScaleFunc {
	if i == noISA {
		return genericScaling(t)
	}
	return vectorScaling(t, i)
}

// lengths returns 0 to 70 and a few longer lengths.
func lengths(r *rand.Rand) []int {
	all, long := []int{0, 1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 70}, 2
	if !testing.Short() {
		all, long = nil, 6
		for n := range 71 {
			all = append(all, n)
		}
	}
	for range long {
		all = append(all, 71+r.IntN(1500))
	}
	return all
}

func TestForAndReducibleAgree(t *testing.T) {
	for _, ty := range append(dtype.Types(), dtype.Invalid, 200) {
		for _, op := range append(dtype.Ops(), 200) {
			require.Equal(t, dtype.Reducible(ty, op) == nil, For(ty, op) != nil, "%v of %v", op, ty)
		}
		isFloat := ty.Float() || ty.Float8() || ty == dtype.C64 || ty == dtype.C128
		require.Equal(t, isFloat, Scale(ty) != nil, "scale of %v", ty)
	}
}

// checkReduction compares f with the reference for one length, for each way in which dst may
// overlap the sources (for a random one of them above 20 elements: the reference is slow).
func checkReduction(t *testing.T, r *rand.Rand, f Func, ty dtype.Type, op dtype.Op, n int) {
	t.Helper()
	if op == dtype.Avg || op == dtype.PremulSum {
		op = dtype.Sum
	}
	real, _ := dtype.Real(ty)
	if real != ty && op == dtype.Prod {
		checkComplexProduct(t, r, f, ty, n)
		return
	}
	size, count := real.Size(), n*ty.Size()
	skew := func() int { return size * r.IntN(64/size) }
	a, b, apart := newGuarded(count, skew()), newGuarded(count, skew()), newGuarded(count, skew())
	ways := []string{"apart", "dst is a", "dst is b", "all one"}
	if n > 20 {
		pick := r.IntN(len(ways))
		ways = ways[pick : pick+1]
	}
	for _, alias := range ways {
		fill(r, ty, a.data)
		fill(r, ty, b.data)
		x, y, dst := a, b, apart
		switch alias {
		case "dst is a":
			dst = a
		case "dst is b":
			dst = b
		case "all one":
			dst, y = a, a
		}
		inA, inB := bytes.Clone(x.data), bytes.Clone(y.data)
		f(dst.pointer(), x.pointer(), y.pointer(), n)
		for i := 0; i < count; i += size {
			p, q := load(inA[i:], size), load(inB[i:], size)
			if want, got := reference(real, op, p, q), load(dst.data[i:], size); want != got {
				t.Fatalf("%v of %v, %s, n %d, element %d: %#x and %#x gave %#x, want %#x",
					op, ty, alias, n, i/size, p, q, got, want)
			}
		}
		if alias == "apart" {
			require.Equal(t, inA, x.data, "a was changed")
			require.Equal(t, inB, y.data, "b was changed")
		}
		for _, g := range []guarded{a, b, apart} {
			require.NoError(t, g.broken())
		}
	}
}

// checkComplexProduct is checkReduction for products of complex numbers, which consist of four
// products and two sums of floats.
func checkComplexProduct(t *testing.T, r *rand.Rand, f Func, ty dtype.Type, n int) {
	t.Helper()
	real, _ := dtype.Real(ty)
	size, step, minus := real.Size(), ty.Size(), formats[real].sign()
	a, b, apart := newGuarded(n*step, 0), newGuarded(n*step, 0), newGuarded(n*step, 0)
	for _, dst := range []guarded{a, b, apart} {
		fill(r, ty, a.data)
		fill(r, ty, b.data)
		inA, inB := bytes.Clone(a.data), bytes.Clone(b.data)
		f(dst.pointer(), a.pointer(), b.pointer(), n)
		for i := 0; i < n*step; i += step {
			prod := func(p, q int) uint64 {
				return reference(real, dtype.Prod, load(inA[i+p*size:], size), load(inB[i+q*size:], size))
			}
			wantRe := reference(real, dtype.Sum, prod(0, 0), prod(1, 1)^minus)
			wantIm := reference(real, dtype.Sum, prod(0, 1), prod(1, 0))
			require.Equal(t, wantRe, load(dst.data[i:], size),
				"real part of %x times %x", inA[i:i+step], inB[i:i+step])
			require.Equal(t, wantIm, load(dst.data[i+size:], size),
				"imaginary part of %x times %x", inA[i:i+step], inB[i:i+step])
		}
		for _, g := range []guarded{a, b, apart} {
			require.NoError(t, g.broken())
		}
	}
}

func TestReductionsMatchTheReference(t *testing.T) {
	for _, ty := range dtype.Types() {
		for _, op := range dtype.Ops() {
			f := For(ty, op)
			if f == nil {
				continue
			}
			t.Run(ty.String()+"/"+op.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(ty), uint64(op)))
				for _, n := range lengths(r) {
					checkReduction(t, r, f, ty, op, n)
				}
			})
		}
	}
}

func TestEverySumMatchesTheReference(t *testing.T) {
	for _, i := range isas() {
		for ty := range formats {
			f := pairWith(ty, dtype.Sum, i)
			if f == nil {
				continue
			}
			t.Run(i.String()+"/"+ty.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(ty), uint64(i)))
				for _, n := range lengths(r) {
					checkReduction(t, r, f, ty, dtype.Sum, n)
				}
			})
		}
	}
}

var factors = []float64{
	1, 0.5, 1.0 / 3, 1.0 / 7, 3, -0.1, 1e-3, 1e30, 1e-30, 1e-300, 0, math.Copysign(0, -1),
	math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff4_dead_beef_0001),
	math.SmallestNonzeroFloat64, math.MaxFloat64,
}

// checkScale compares f with the reference for one length, with a separate dst and in place.
func checkScale(t *testing.T, r *rand.Rand, f ScaleFunc, ty dtype.Type, n int, factor float64) {
	t.Helper()
	real, _ := dtype.Real(ty)
	size, count := real.Size(), n*ty.Size()
	src, apart := newGuarded(count, size*r.IntN(64/size)), newGuarded(count, size*r.IntN(64/size))
	for _, dst := range []guarded{apart, src} {
		fill(r, ty, src.data)
		in := bytes.Clone(src.data)
		f(dst.pointer(), src.pointer(), n, factor)
		for i := 0; i < count; i += size {
			p := load(in[i:], size)
			if want, got := referenceScale(real, p, factor), load(dst.data[i:], size); want != got {
				t.Fatalf("%v × %v, n %d, element %d: %#x gave %#x, want %#x", ty, factor, n, i/size, p, got, want)
			}
		}
		require.NoError(t, src.broken())
		require.NoError(t, apart.broken())
	}
}

func TestScalesMatchTheReference(t *testing.T) {
	for _, ty := range dtype.Types() {
		if Scale(ty) == nil {
			continue
		}
		fs := map[string]ScaleFunc{"chosen": Scale(ty)}
		for _, i := range isas() {
			if f := scaleWith(ty, i); f != nil {
				fs[i.String()] = f
			}
		}
		for name, f := range fs {
			t.Run(ty.String()+"/"+name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(ty), 1))
				for _, n := range lengths(r) {
					checkScale(t, r, f, ty, n, factors[r.IntN(len(factors))])
					checkScale(t, r, f, ty, n, r.NormFloat64())
				}
			})
		}
	}
}

// An average over three ranks is where a second rounding shows. The test covers every value of the
// 16-bit formats, by every path.
func TestScaleRoundsOnce(t *testing.T) {
	all := newGuarded(2<<16, 0)
	for u := range 1 << 16 {
		store(all.data[2*u:], 2, uint64(u))
	}
	for _, ty := range []dtype.Type{dtype.F16, dtype.BF16} {
		for _, i := range isas() {
			f := scaleWith(ty, i)
			if f == nil {
				continue
			}
			for _, factor := range []float64{
				1, 1.0 / 3, 1.0 / 5, 1 + 0x1p-9, 1 + 0x1p-9 + 0x1p-40, 0x1p-10, 0x1.fp-130, 1e5,
			} {
				dst := newGuarded(2<<16, 0)
				f(dst.pointer(), all.pointer(), 1<<16, factor)
				for u := range 1 << 16 {
					if want, got := referenceScale(ty, uint64(u), factor), load(dst.data[2*u:], 2); want != got {
						t.Fatalf("%v by %v × %v: %#x gave %#x, want %#x", ty, i, factor, u, got, want)
					}
				}
			}
		}
	}
}
