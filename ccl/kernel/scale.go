package kernel

import (
	"math"
	"unsafe"
)

// scaleFloats multiplies in float64 and rounds once to E.
func scaleFloats[E float](dst, src unsafe.Pointer, n int, factor float64) {
	d, x := unsafe.Slice((*E)(dst), n), unsafe.Slice((*E)(src), n)
	for i := range d {
		r := E(float64(x[i]) * factor)
		if r != r {
			r = nanOf(x[i], 0)
		}
		d[i] = r
	}
}

func scaleF16(dst, src unsafe.Pointer, n int, factor float64) {
	d, x := unsafe.Slice((*uint16)(dst), n), unsafe.Slice((*uint16)(src), n)
	for i := range d {
		p := float64(widenF16(x[i])) * factor
		if p != p {
			d[i] = nanOfHalves(&float16Layout, x[i], 0)
			continue
		}
		d[i] = narrowF16(roundToOdd(p))
	}
}

func scaleBF16(dst, src unsafe.Pointer, n int, factor float64) {
	d, x := unsafe.Slice((*uint16)(dst), n), unsafe.Slice((*uint16)(src), n)
	for i := range d {
		p := float64(widenBF16(x[i])) * factor
		if p != p {
			d[i] = nanOfHalves(&bfloat16Layout, x[i], 0)
			continue
		}
		d[i] = narrowBF16(roundToOdd(p))
	}
}

// defaultNaN is the result of an invalid operation. It replaces a NaN factor, whose payload
// assembly would pass on.
var defaultNaN = math.Float64frombits(0xfff8 << 48)
