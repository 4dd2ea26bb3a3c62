package kernel

import "unsafe"

type signed interface{ int8 | int16 | int32 | int64 }

// layout describes a floating-point format by integers of its size. Min, Max and the choice of a
// NaN need no arithmetic, so they are written once, on the bits.
type layout[I signed] struct {
	magnitude I // all bits but the sign
	infinity  I // magnitudes above it are NaN
	quiet     I // the bit that tells a quiet NaN from a signalling one; with 8 bits the whole payload
}

var (
	float64Layout  = layout[int64]{1<<63 - 1, 0x7ff << 52, 1 << 51}
	float32Layout  = layout[int32]{1<<31 - 1, 0xff << 23, 1 << 22}
	float16Layout  = layout[int16]{1<<15 - 1, 0x1f << 10, 1 << 9}
	bfloat16Layout = layout[int16]{1<<15 - 1, 0xff << 7, 1 << 6}
	float8e4Layout = layout[int8]{1<<7 - 1, 0x7e, 0x7f} // the largest number takes the place of infinity
	float8e5Layout = layout[int8]{1<<7 - 1, 0x1f << 2, 0x7f}
)

func (l layout[I]) isNaN(x I) bool { return x&l.magnitude > l.infinity }

// nan returns the result of an operation on x and y that gives NaN: see the package comment.
//
//go:noinline
func (l layout[I]) nan(x, y I) I {
	switch {
	case l.isNaN(x):
		return x | l.quiet
	case l.isNaN(y):
		return y | l.quiet
	}
	return ^l.magnitude | l.infinity | l.quiet
}

// order maps sign and magnitude to an integer, so that -0 comes right before +0.
func order[I signed](x, magnitude I) I { return x ^ (x >> (8*unsafe.Sizeof(x) - 1) & magnitude) }

func (l layout[I]) min(dst, a, b unsafe.Pointer, n int) {
	d, x, y := unsafe.Slice((*I)(dst), n), unsafe.Slice((*I)(a), n), unsafe.Slice((*I)(b), n)
	magnitude, infinity := l.magnitude, l.infinity
	for i := range d {
		p, q := x[i], y[i]
		r := p
		if order(q, magnitude) < order(p, magnitude) {
			r = q
		}
		if p&magnitude > infinity || q&magnitude > infinity {
			r = l.nan(p, q)
		}
		d[i] = r
	}
}

func (l layout[I]) max(dst, a, b unsafe.Pointer, n int) {
	d, x, y := unsafe.Slice((*I)(dst), n), unsafe.Slice((*I)(a), n), unsafe.Slice((*I)(b), n)
	magnitude, infinity := l.magnitude, l.infinity
	for i := range d {
		p, q := x[i], y[i]
		r := p
		if order(q, magnitude) > order(p, magnitude) {
			r = q
		}
		if p&magnitude > infinity || q&magnitude > infinity {
			r = l.nan(p, q)
		}
		d[i] = r
	}
}

func minF64(dst, a, b unsafe.Pointer, n int)  { float64Layout.min(dst, a, b, n) }
func maxF64(dst, a, b unsafe.Pointer, n int)  { float64Layout.max(dst, a, b, n) }
func minF32(dst, a, b unsafe.Pointer, n int)  { float32Layout.min(dst, a, b, n) }
func maxF32(dst, a, b unsafe.Pointer, n int)  { float32Layout.max(dst, a, b, n) }
func minF16(dst, a, b unsafe.Pointer, n int)  { float16Layout.min(dst, a, b, n) }
func maxF16(dst, a, b unsafe.Pointer, n int)  { float16Layout.max(dst, a, b, n) }
func minBF16(dst, a, b unsafe.Pointer, n int) { bfloat16Layout.min(dst, a, b, n) }
func maxBF16(dst, a, b unsafe.Pointer, n int) { bfloat16Layout.max(dst, a, b, n) }

func minF8E4M3(dst, a, b unsafe.Pointer, n int) { float8e4Layout.min(dst, a, b, n) }
func maxF8E4M3(dst, a, b unsafe.Pointer, n int) { float8e4Layout.max(dst, a, b, n) }
func minF8E5M2(dst, a, b unsafe.Pointer, n int) { float8e5Layout.min(dst, a, b, n) }
func maxF8E5M2(dst, a, b unsafe.Pointer, n int) { float8e5Layout.max(dst, a, b, n) }
