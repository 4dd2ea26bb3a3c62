package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

// Throughput is given in bytes of dst, to be compared with copies; three times that crosses the memory bus in a reduction.

var benchSizes = []struct {
	name  string
	bytes int
}{{"64B", 64}, {"4KiB", 4 << 10}, {"256KiB", 256 << 10}, {"64MiB", 64 << 20}}

// plain fills p with ordinary numbers: NaN and subnormals would measure something else.
func plain(t dtype.Type, p []byte) {
	r := rand.New(rand.NewPCG(1, 1))
	real, _ := dtype.Real(t)
	f, isFloat := formats[real]
	for size := real.Size(); len(p) >= size; p = p[size:] {
		u := r.Uint64() >> (64 - 8*size)
		if isFloat {
			u = u&f.sign() | (uint64(1)<<(f.exponent-1)-1)<<f.fraction | u&(1<<f.fraction-1)
		}
		store(p, size, u)
	}
}

func benchReduction(b *testing.B, f Func, t dtype.Type, bytes, skew int) {
	x, y, dst := newGuarded(bytes, 0), newGuarded(bytes, 0), newGuarded(bytes, skew)
	plain(t, x.data)
	plain(t, y.data)
	p, q, r, n := dst.pointer(), x.pointer(), y.pointer(), bytes/t.Size()
	b.SetBytes(int64(bytes))
	for b.Loop() {
		f(p, q, r, n)
	}
}

func BenchmarkSum(b *testing.B) {
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16} {
		for _, i := range isas() {
			for _, s := range benchSizes {
				b.Run(fmt.Sprintf("%v/%v/%s", t, i, s.name), func(b *testing.B) { benchReduction(b, sumWith(t, i), t, s.bytes, 0) })
			}
		}
	}
}

func BenchmarkSumMisaligned(b *testing.B) {
	for _, skew := range []int{0, 4, 16, 32} {
		for _, i := range isas() {
			b.Run(fmt.Sprintf("%v/skew%d", i, skew), func(b *testing.B) { benchReduction(b, sumWith(dtype.F32, i), dtype.F32, 4<<10, skew) })
		}
	}
}

func BenchmarkReduction(b *testing.B) {
	for _, t := range dtype.Types() {
		for _, op := range dtype.Ops() {
			if f := For(t, op); f != nil && op != dtype.Avg && op != dtype.PremulSum {
				b.Run(fmt.Sprintf("%v/%v", t, op), func(b *testing.B) { benchReduction(b, f, t, 64<<10, 0) })
			}
		}
	}
}

func BenchmarkScale(b *testing.B) {
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16} {
		for _, i := range isas() {
			f := scaleWith(t, i)
			for _, s := range benchSizes[:3] {
				b.Run(fmt.Sprintf("%v/%v/%s", t, i, s.name), func(b *testing.B) {
					src, dst := newGuarded(s.bytes, 0), newGuarded(s.bytes, 0)
					plain(t, src.data)
					p, q, n := dst.pointer(), src.pointer(), s.bytes/t.Size()
					b.SetBytes(int64(s.bytes))
					for b.Loop() {
						f(p, q, n, 1.0/3)
					}
				})
			}
		}
	}
}
