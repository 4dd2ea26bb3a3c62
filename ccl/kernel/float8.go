package kernel

import (
	"math"
	"unsafe"
)

// The conversions are torch's. E5M2 is IEEE: a value that is too large becomes infinite. E4M3
// (e4m3fn) has no infinity: a value that is too large, or infinite, becomes the largest number,
// 448. A NaN keeps its sign and has all other bits set.

// widenedF8E4M3 and widenedF8E5M2 are the values of all 8-bit floats. F32 holds them exactly.
var widenedF8E4M3, widenedF8E5M2 = widenAll(4), widenAll(5)

func widenAll(exponentBits int) *[256]float32 {
	all := new([256]float32)
	fractionBits := 7 - exponentBits
	bias := 1<<(exponentBits-1) - 1
	for u := range 128 {
		exponent, fraction := u>>fractionBits, u&(1<<fractionBits-1)
		v := math.Ldexp(float64(fraction|1<<fractionBits), exponent-bias-fractionBits)
		switch {
		case exponent == 0:
			v = math.Ldexp(float64(fraction), 1-bias-fractionBits)
		case exponentBits == 4 && u == 0x7f, exponentBits == 5 && u > 0x7c:
			nan := 0x7fc00000 | uint32(fraction)<<(23-fractionBits) // quiet, with the payload
			all[u], all[u|0x80] = math.Float32frombits(nan), math.Float32frombits(nan|1<<31)
			continue
		case exponentBits == 5 && u == 0x7c:
			v = math.Inf(1)
		}
		all[u], all[u|0x80] = float32(v), float32(math.Copysign(v, -1))
	}
	return all
}

// narrowF8E4M3 and narrowF8E5M2 round to nearest even.
func narrowF8E4M3(f float32) uint8 {
	u := math.Float32bits(f)
	sign, m := uint8(u>>24&0x80), u&(1<<31-1)
	switch {
	case m > 0xff<<23:
		return sign | 0x7f
	case m >= 0x43e00000: // 448
		return sign | 0x7e
	case m < 0x3c800000: // 2⁻⁶
		// The last place of 2¹⁴ is that of a subnormal, so the addition rounds where it should.
		return sign | uint8(math.Float32bits(math.Float32frombits(m)+0x1p14)-math.Float32bits(0x1p14))
	}
	return sign | uint8((m-120<<23+0x7ffff+m>>20&1)>>20)
}

func narrowF8E5M2(f float32) uint8 {
	u := math.Float32bits(f)
	sign, m := uint8(u>>24&0x80), u&(1<<31-1)
	switch {
	case m > 0xff<<23:
		return sign | 0x7f
	case m >= 0x47700000: // 61440, half way from the largest number to 2¹⁶
		return sign | 0x7c
	case m < 0x38800000: // 2⁻¹⁴; see above
		return sign | uint8(math.Float32bits(math.Float32frombits(m)+0x1p7)-math.Float32bits(0x1p7))
	}
	return sign | uint8((m-112<<23+0xfffff+m>>21&1)>>21)
}

// quarters returns the operands of an 8-bit kernel as slices.
func quarters(dst, a, b unsafe.Pointer, n int) (d, x, y []uint8) {
	return unsafe.Slice((*uint8)(dst), n), unsafe.Slice((*uint8)(a), n), unsafe.Slice((*uint8)(b), n)
}

// nanOfQuarters is nanOf for the bits of 8-bit floats.
func nanOfQuarters(l *layout[int8], x, y uint8) uint8 { return uint8(l.nan(int8(x), int8(y))) }

func sumF8E4M3(dst, a, b unsafe.Pointer, n int) {
	d, x, y := quarters(dst, a, b, n)
	wide := widenedF8E4M3
	for i := range d {
		s := wide[x[i]] + wide[y[i]]
		if s != s {
			d[i] = nanOfQuarters(&float8e4Layout, x[i], y[i])
			continue
		}
		d[i] = narrowF8E4M3(s)
	}
}

func prodF8E4M3(dst, a, b unsafe.Pointer, n int) {
	d, x, y := quarters(dst, a, b, n)
	wide := widenedF8E4M3
	for i := range d {
		s := wide[x[i]] * wide[y[i]]
		if s != s {
			d[i] = nanOfQuarters(&float8e4Layout, x[i], y[i])
			continue
		}
		d[i] = narrowF8E4M3(s)
	}
}

func sumF8E5M2(dst, a, b unsafe.Pointer, n int) {
	d, x, y := quarters(dst, a, b, n)
	wide := widenedF8E5M2
	for i := range d {
		s := wide[x[i]] + wide[y[i]]
		if s != s {
			d[i] = nanOfQuarters(&float8e5Layout, x[i], y[i])
			continue
		}
		d[i] = narrowF8E5M2(s)
	}
}

func prodF8E5M2(dst, a, b unsafe.Pointer, n int) {
	d, x, y := quarters(dst, a, b, n)
	wide := widenedF8E5M2
	for i := range d {
		s := wide[x[i]] * wide[y[i]]
		if s != s {
			d[i] = nanOfQuarters(&float8e5Layout, x[i], y[i])
			continue
		}
		d[i] = narrowF8E5M2(s)
	}
}

// Scaling maps one byte to one byte, so a long buffer is scaled by a table that is made once.

const tableLeast = 1024 // elements that are worth a table

func scaleF8E4M3(dst, src unsafe.Pointer, n int, factor float64) {
	scaleQuarters(scaledF8E4M3, dst, src, n, factor)
}

func scaleF8E5M2(dst, src unsafe.Pointer, n int, factor float64) {
	scaleQuarters(scaledF8E5M2, dst, src, n, factor)
}

func scaleQuarters(scaled func(x uint8, factor float64) uint8, dst, src unsafe.Pointer, n int, factor float64) {
	d, x := unsafe.Slice((*uint8)(dst), n), unsafe.Slice((*uint8)(src), n)
	if n < tableLeast {
		for i := range d {
			d[i] = scaled(x[i], factor)
		}
		return
	}
	var table [256]uint8
	for u := range table {
		table[u] = scaled(uint8(u), factor)
	}
	translate(d, x, &table)
}

func scaledF8E4M3(x uint8, factor float64) uint8 {
	p := float64(widenedF8E4M3[x]) * factor
	if p != p {
		return nanOfQuarters(&float8e4Layout, x, 0)
	}
	return narrowF8E4M3(roundToOdd(p))
}

func scaledF8E5M2(x uint8, factor float64) uint8 {
	p := float64(widenedF8E5M2[x]) * factor
	if p != p {
		return nanOfQuarters(&float8e5Layout, x, 0)
	}
	return narrowF8E5M2(roundToOdd(p))
}

func translate(d, x []uint8, table *[256]uint8) {
	for len(d) >= 4 && len(x) >= 4 {
		d[0], d[1], d[2], d[3] = table[x[0]], table[x[1]], table[x[2]], table[x[3]]
		d, x = d[4:], x[4:]
	}
	for i := range d {
		d[i] = table[x[i]]
	}
}
