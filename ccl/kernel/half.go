package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// halfReduction chooses the kernel of a float of 16 or 8 bits.
func halfReduction(op dtype.Op, sum, prod, smaller, larger Func) Func {
	switch op {
	case dtype.Sum:
		return sum
	case dtype.Prod:
		return prod
	case dtype.Min:
		return smaller
	case dtype.Max:
		return larger
	}
	return nil
}

// halves returns the operands of a 16-bit kernel as slices.
func halves(dst, a, b unsafe.Pointer, n int) (d, x, y []uint16) {
	return unsafe.Slice((*uint16)(dst), n), unsafe.Slice((*uint16)(a), n), unsafe.Slice((*uint16)(b), n)
}

// nanOfHalves is nanOf for the bits of 16-bit floats.
func nanOfHalves(l *layout[int16], x, y uint16) uint16 { return uint16(l.nan(int16(x), int16(y))) }

func sumF16(dst, a, b unsafe.Pointer, n int) {
	d, x, y := halves(dst, a, b, n)
	for i := range d {
		s := widenF16(x[i]) + widenF16(y[i])
		if s != s {
			d[i] = nanOfHalves(&float16Layout, x[i], y[i])
			continue
		}
		d[i] = narrowF16(s)
	}
}

func prodF16(dst, a, b unsafe.Pointer, n int) {
	d, x, y := halves(dst, a, b, n)
	for i := range d {
		s := widenF16(x[i]) * widenF16(y[i])
		if s != s {
			d[i] = nanOfHalves(&float16Layout, x[i], y[i])
			continue
		}
		d[i] = narrowF16(s)
	}
}

func sumBF16(dst, a, b unsafe.Pointer, n int) {
	d, x, y := halves(dst, a, b, n)
	for i := range d {
		s := widenBF16(x[i]) + widenBF16(y[i])
		if s != s {
			d[i] = nanOfHalves(&bfloat16Layout, x[i], y[i])
			continue
		}
		d[i] = narrowBF16(s)
	}
}

func prodBF16(dst, a, b unsafe.Pointer, n int) {
	d, x, y := halves(dst, a, b, n)
	for i := range d {
		s := widenBF16(x[i]) * widenBF16(y[i])
		if s != s {
			d[i] = nanOfHalves(&bfloat16Layout, x[i], y[i])
			continue
		}
		d[i] = narrowBF16(s)
	}
}
