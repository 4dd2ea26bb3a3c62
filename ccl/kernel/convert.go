package kernel

import (
	"math"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// ConvertFunc sets dst[i] to src[i] in another type, for n elements. dst and src do not overlap.
type ConvertFunc func(dst, src unsafe.Pointer, n int)

// Convert returns the conversion between F32 and a shorter float, in either direction, or nil for
// other pairs. Widening is exact; narrowing rounds to nearest even, as inside the reductions. A NaN
// stays a NaN of the same sign. It keeps the part of its payload that fits, with the quiet bit set
// (only widening BF16, which moves bits, leaves a signalling NaN as it is). From F32 to 8 bits all
// payload bits are set.
func Convert(dst, src dtype.Type) ConvertFunc {
	if dst >= typeCount || src >= typeCount {
		return nil
	}
	return converters[dst][src]
}

var converters [typeCount][typeCount]ConvertFunc

// shorterFloats lists the types that Convert knows beside F32.
var shorterFloats = [...]dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2}

func converter(dst, src dtype.Type, with isa) ConvertFunc {
	if v := vectorConversion(dst, src, with); v != nil {
		return v
	}
	return genericConversion(dst, src)
}

func genericConversion(dst, src dtype.Type) ConvertFunc {
	switch {
	case dst == dtype.F32:
		switch src {
		case dtype.F16:
			return widenF16s
		case dtype.BF16:
			return widenBF16s
		case dtype.F8E4M3:
			return func(dst, src unsafe.Pointer, n int) { widenQuarters(widenedF8E4M3, dst, src, n) }
		case dtype.F8E5M2:
			return func(dst, src unsafe.Pointer, n int) { widenQuarters(widenedF8E5M2, dst, src, n) }
		}
	case src == dtype.F32:
		switch dst {
		case dtype.F16:
			return narrowF16s
		case dtype.BF16:
			return narrowBF16s
		case dtype.F8E4M3:
			return narrowF8E4M3s
		case dtype.F8E5M2:
			return narrowF8E5M2s
		}
	}
	return nil
}

// views returns the elements of both sides of a conversion.
func views[D, S any](dst, src unsafe.Pointer, n int) ([]D, []S) {
	return unsafe.Slice((*D)(dst), n), unsafe.Slice((*S)(src), n)
}

func widenF16s(dst, src unsafe.Pointer, n int) {
	d, x := views[uint32, uint16](dst, src, n)
	for i := range d {
		u := math.Float32bits(widenF16(x[i]))
		if x[i]&0x7fff > 0x7c00 {
			u |= 1 << 22
		}
		d[i] = u
	}
}

func widenBF16s(dst, src unsafe.Pointer, n int) {
	d, x := views[uint32, uint16](dst, src, n)
	for i := range d {
		d[i] = uint32(x[i]) << 16
	}
}

func narrowF16s(dst, src unsafe.Pointer, n int) {
	d, x := views[uint16, float32](dst, src, n)
	for i := range d {
		d[i] = narrowF16(x[i])
	}
}

func narrowBF16s(dst, src unsafe.Pointer, n int) {
	d, x := views[uint16, float32](dst, src, n)
	for i := range d {
		d[i] = narrowBF16(x[i])
	}
}

func widenQuarters(wide *[256]float32, dst, src unsafe.Pointer, n int) {
	d, x := views[float32, uint8](dst, src, n)
	for i := range d {
		d[i] = wide[x[i]]
	}
}

func narrowF8E4M3s(dst, src unsafe.Pointer, n int) {
	d, x := views[uint8, float32](dst, src, n)
	for i := range d {
		d[i] = narrowF8E4M3(x[i])
	}
}

func narrowF8E5M2s(dst, src unsafe.Pointer, n int) {
	d, x := views[uint8, float32](dst, src, n)
	for i := range d {
		d[i] = narrowF8E5M2(x[i])
	}
}
