package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// mismatch returns the first byte in which a and b differ, or -1.
func mismatch(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// operands are two sources and a destination, each at any alignment that the type allows and
// between guards.
type operands struct {
	dst, a, b guarded
	way       string
}

func newOperands(r *rand.Rand, t dtype.Type, n int) operands {
	size := t.Size()
	piece := func() guarded { return newGuarded(n*size, size*r.IntN(64/size)) }
	o := operands{piece(), piece(), piece(), "apart"}
	if r.IntN(3) == 0 { // all three at the same distance from a cache line, as in most calls
		skew := size * r.IntN(64/size)
		o.dst, o.a, o.b = newGuarded(n*size, skew), newGuarded(n*size, skew), newGuarded(n*size, skew)
	}
	switch r.IntN(4) {
	case 0:
		o.dst, o.way = o.a, "dst is a"
	case 1:
		o.dst, o.way = o.b, "dst is b"
	}
	fill(r, t, o.a.data)
	fill(r, t, o.b.data)
	return o
}

// broken reports the first write outside the data.
func (o operands) broken() error {
	for _, g := range []guarded{o.dst, o.a, o.b} {
		if err := g.broken(); err != nil {
			return err
		}
	}
	return nil
}

// someLengths returns 0 to 70 elements, and longer lengths around those at which the code changes
// its loop.
func someLengths(r *rand.Rand, size int) []int {
	var all []int
	for n := range 71 {
		all = append(all, n)
	}
	for range 12 {
		all = append(all, r.IntN(2600)/size)
	}
	return append(all, 4096/size+r.IntN(99), 20000/size+r.IntN(99))
}

// The loops in Go define the bits of every pair.
func TestEveryPairEqualsTheLoopInGo(t *testing.T) {
	for _, ty := range realTypes() {
		for _, op := range dtype.Ops() {
			generic := genericReduction(ty, op)
			for _, i := range machineISAs {
				f := pairWith(ty, op, i)
				if generic == nil || f == nil {
					continue
				}
				r := rand.New(rand.NewPCG(uint64(ty), uint64(op)))
				for _, n := range someLengths(r, ty.Size()) {
					o := newOperands(r, ty, n)
					inA, inB := bytes.Clone(o.a.data), bytes.Clone(o.b.data)
					want := newGuarded(n*ty.Size(), 0)
					generic(want.pointer(), o.a.pointer(), o.b.pointer(), n)
					f(o.dst.pointer(), o.a.pointer(), o.b.pointer(), n)
					if at := mismatch(want.data, o.dst.data); at >= 0 {
						size := ty.Size()
						at -= at % size
						t.Fatalf("%v of %v by %v, %s, n %d, element %d: %#x and %#x gave %#x, want %#x",
							op, ty, i, o.way, n, at/size, load(inA[at:], size), load(inB[at:], size),
							load(o.dst.data[at:], size), load(want.data[at:], size))
					}
					require.NoError(t, o.broken(), "%v of %v by %v, %s, n %d", op, ty, i, o.way, n)
				}
			}
		}
	}
}

// Every 16-bit value meets a few others: all corners of rounding, of order and of NaN, in every
// lane.
func TestEveryHalfByEveryPath(t *testing.T) {
	a, b := newGuarded(2<<16, 0), newGuarded(2<<16, 0)
	for u := range 1 << 16 {
		store(a.data[2*u:], 2, uint64(u))
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, ty := range []dtype.Type{dtype.F16, dtype.BF16} {
		for _, op := range []dtype.Op{dtype.Sum, dtype.Prod, dtype.Min, dtype.Max} {
			for range 8 {
				other := interesting(r, ty)
				for u := range 1 << 16 {
					store(b.data[2*u:], 2, other)
				}
				want := newGuarded(2<<16, 0)
				genericReduction(ty, op)(want.pointer(), a.pointer(), b.pointer(), 1<<16)
				for _, i := range machineISAs {
					f := pairWith(ty, op, i)
					if f == nil {
						continue
					}
					got := newGuarded(2<<16, 0)
					f(got.pointer(), a.pointer(), b.pointer(), 1<<16)
					if at := mismatch(want.data, got.data); at >= 0 {
						at &^= 1
						t.Fatalf("%v of %v by %v: %#x and %#x gave %#x, want %#x",
							op, ty, i, at/2, other, load(got.data[at:], 2), load(want.data[at:], 2))
					}
				}
			}
		}
	}
}

func TestCopyStreamCopies(t *testing.T) {
	copies := []CopyFunc{CopyStream, copyBytes}
	for _, i := range machineISAs {
		if f := vectorCopy(i); f != nil {
			copies = append(copies, f)
		}
	}
	r := rand.New(rand.NewPCG(11, 12))
	for c, f := range copies {
		for _, n := range append(someLengths(r, 1), 4096, 4096+63, 1<<18, 1<<20+77) {
			src, dst := newGuarded(n, r.IntN(64)), newGuarded(n, r.IntN(64))
			fill(r, dtype.U8, src.data)
			want := bytes.Clone(src.data)
			f(dst.pointer(), src.pointer(), n)
			require.Equal(t, -1, mismatch(want, dst.data), "copy %d, n %d", c, n)
			require.NoError(t, dst.broken())
			require.NoError(t, src.broken())
		}
	}
}

func TestSumScaleEqualsSumThenScale(t *testing.T) {
	for ty := range formats {
		for _, i := range isas() {
			f := sumScaleKernel(ty, i)
			r := rand.New(rand.NewPCG(uint64(ty), 4))
			size := ty.Size()
			for _, n := range append(someLengths(r, size), 1<<19/size+7) {
				o := newOperands(r, ty, n)
				factor := factors[r.IntN(len(factors))]
				if r.IntN(2) == 0 {
					factor = r.NormFloat64()
				}
				want := newGuarded(n*size, 0)
				genericReduction(ty, dtype.Sum)(want.pointer(), o.a.pointer(), o.b.pointer(), n)
				genericScaling(ty)(want.pointer(), want.pointer(), n, factor)
				f(o.dst.pointer(), o.a.pointer(), o.b.pointer(), n, factor)
				if at := mismatch(want.data, o.dst.data); at >= 0 {
					at -= at % size
					t.Fatalf("%v by %v × %v, %s, n %d, element %d: %#x, want %#x",
						ty, i, factor, o.way, n, at/size, load(o.dst.data[at:], size), load(want.data[at:], size))
				}
				require.NoError(t, o.broken())
			}
		}
	}
	for _, ty := range dtype.Types() {
		require.Equal(t, Scale(ty) != nil, SumScale(ty) != nil, "%v", ty)
	}
}
