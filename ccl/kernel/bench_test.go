package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// Benchmarks report throughput in bytes of dst, for comparison with copies. A reduction moves three
// times as many bytes over the memory bus.

var benchSizes = []struct {
	name  string
	bytes int
}{{"64B", 64}, {"4KiB", 4 << 10}, {"256KiB", 256 << 10}, {"64MiB", 64 << 20}}

// plain fills p with ordinary numbers, the same in each MiB. NaN and subnormals would measure
// something else.
func plain(t dtype.Type, p []byte) {
	const period = 1 << 20
	r := rand.New(rand.NewPCG(1, 1))
	real, _ := dtype.Real(t)
	f, isFloat := formats[real]
	size := real.Size()
	for first := p[:min(len(p), period)]; len(first) >= size; first = first[size:] {
		u := r.Uint64() >> (64 - 8*size)
		if isFloat {
			u = u&f.sign() | (uint64(1)<<(f.exponent-1)-1)<<f.fraction | u&(1<<f.fraction-1)
		}
		store(first, size, u)
	}
	for n := period; n < len(p); n += period {
		copy(p[n:], p[:period])
	}
}

// loop measures f, which writes the given number of bytes.
func loop(b *testing.B, bytes int, f func()) {
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

func benchReduction(b *testing.B, f Func, t dtype.Type, bytes, skew int) {
	x, y, dst := newGuarded(bytes, 0), newGuarded(bytes, 0), newGuarded(bytes, skew)
	plain(t, x.data)
	plain(t, y.data)
	p, q, r, n := dst.pointer(), x.pointer(), y.pointer(), bytes/t.Size()
	loop(b, bytes, func() { f(p, q, r, n) })
}

// benchFloats are the types whose kernels have variants of every kind.
var benchFloats = []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16}

func BenchmarkSum(b *testing.B) {
	for _, t := range dtype.Types() {
		if !t.Float() && !t.Float8() {
			continue
		}
		for _, i := range isas() {
			f := pairWith(t, dtype.Sum, i)
			if f == nil {
				continue
			}
			for _, s := range benchSizes {
				b.Run(fmt.Sprintf("%v/%v/%s", t, i, s.name), func(b *testing.B) { benchReduction(b, f, t, s.bytes, 0) })
			}
		}
	}
}

func BenchmarkSumMisaligned(b *testing.B) {
	for _, skew := range []int{0, 4, 16, 32} {
		for _, i := range isas() {
			f := pairWith(dtype.F32, dtype.Sum, i)
			b.Run(fmt.Sprintf("%v/skew%d", i, skew), func(b *testing.B) {
				benchReduction(b, f, dtype.F32, 4<<10, skew)
			})
		}
	}
}

func BenchmarkPair(b *testing.B) {
	for _, t := range dtype.Types() {
		for _, op := range dtype.Ops() {
			for _, i := range isas() {
				if f := pairWith(t, op, i); f != nil {
					b.Run(fmt.Sprintf("%v/%v/%v", t, op, i), func(b *testing.B) { benchReduction(b, f, t, 64<<10, 0) })
				}
			}
		}
	}
}

func BenchmarkScale(b *testing.B) {
	for _, t := range benchFloats {
		for _, i := range isas() {
			f := scaleWith(t, i)
			if f == nil {
				continue
			}
			for _, s := range benchSizes[:3] {
				b.Run(fmt.Sprintf("%v/%v/%s", t, i, s.name), func(b *testing.B) {
					benchReduction(b, func(dst, src, _ unsafe.Pointer, n int) { f(dst, src, n, 1.0/3) }, t, s.bytes, 0)
				})
			}
		}
	}
}

// BenchmarkSumScale compares one pass with two.
func BenchmarkSumScale(b *testing.B) {
	for _, t := range benchFloats {
		for _, i := range isas() {
			fused, sum, scale := sumScaleKernel(t, i), pairKernel(t, dtype.Sum, i), scaleKernel(t, i)
			for _, s := range benchSizes[1:3] {
				b.Run(fmt.Sprintf("%v/%v/%s/fused", t, i, s.name), func(b *testing.B) {
					benchReduction(b, func(dst, x, y unsafe.Pointer, n int) {
						fused(dst, x, y, n, 1.0/3)
					}, t, s.bytes, 0)
				})
				b.Run(fmt.Sprintf("%v/%v/%s/apart", t, i, s.name), func(b *testing.B) {
					benchReduction(b, func(dst, x, y unsafe.Pointer, n int) {
						sum(dst, x, y, n)
						scale(dst, dst, n, 1.0/3)
					}, t, s.bytes, 0)
				})
			}
		}
	}
}

// BenchmarkFold compares one pass over several sources with a pass for each.
func BenchmarkFold(b *testing.B) {
	type pair struct {
		t  dtype.Type
		op dtype.Op
	}
	for _, of := range []pair{
		{dtype.F32, dtype.Sum}, {dtype.F64, dtype.Sum}, {dtype.BF16, dtype.Sum}, {dtype.F16, dtype.Sum},
		{dtype.F32, dtype.Prod}, {dtype.F32, dtype.Max}, {dtype.BF16, dtype.Prod},
		{dtype.I8, dtype.Sum}, {dtype.I64, dtype.Sum},
	} {
		t := of.t
		for _, i := range isas() {
			f := newFolder(t, of.op, i)
			for _, k := range []int{3, 4, 8} {
				for _, size := range []int{4 << 10, 256 << 10} {
					dst, src := newGuarded(size, 0), make([]unsafe.Pointer, k)
					for j := range src {
						x := newGuarded(size, 0)
						plain(t, x.data)
						src[j] = x.pointer()
					}
					n := size / t.Size()
					name := fmt.Sprintf("%v/%v/%v/%d/%dKiB", t, of.op, i, k, size>>10)
					b.Run(name+"/fold", func(b *testing.B) {
						loop(b, size, func() { f.reduce(dst.pointer(), src, n) })
					})
					b.Run(name+"/pairs", func(b *testing.B) {
						loop(b, size, func() {
							f.pair(dst.pointer(), src[0], src[1], n)
							for _, p := range src[2:] {
								f.pair(dst.pointer(), dst.pointer(), p, n)
							}
						})
					})
				}
			}
		}
	}
}

// BenchmarkStream compares copies past the caches with ordinary ones.
func BenchmarkStream(b *testing.B) {
	copyOf := func(f CopyFunc) Func { return func(dst, src, _ unsafe.Pointer, n int) { f(dst, src, n) } }
	for _, size := range []int{256 << 10, 64 << 20} {
		for _, i := range isas()[1:] {
			if f := vectorCopy(i); f != nil {
				name := fmt.Sprintf("copy/%v/%dKiB", i, size>>10)
				b.Run(name+"/plain", func(b *testing.B) { benchReduction(b, copyOf(copyBytes), dtype.U8, size, 0) })
				b.Run(name+"/stream", func(b *testing.B) { benchReduction(b, copyOf(f), dtype.U8, size, 0) })
			}
		}
	}
}
