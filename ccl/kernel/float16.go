package kernel

import "math"

// widenF16 is exact. A signalling NaN stays a signalling NaN.
func widenF16(h uint16) float32 {
	u := uint32(h&0x7fff)<<13 + 112<<23
	if h&0x7c00 == 0x7c00 {
		u += 112 << 23
	} else if h&0x7c00 == 0 { // subnormal or zero: 2⁻¹⁴ with the same fraction, minus 2⁻¹⁴
		u = math.Float32bits(math.Float32frombits(u+1<<23) - 0x1p-14)
	}
	return math.Float32frombits(u | uint32(h&0x8000)<<16)
}

// narrowF16 rounds to nearest even. A NaN keeps its sign and the part of its payload that fits, and
// becomes quiet.
func narrowF16(f float32) uint16 {
	u := math.Float32bits(f)
	m := u & (1<<31 - 1)
	if m-0x38800000 >= 0x477ff000-0x38800000 { // below 2⁻¹⁴, or from where rounding reaches infinity
		return narrowOddF16(u)
	}
	return uint16(u>>16&0x8000 | (m-112<<23+0xfff+m>>13&1)>>13)
}

// narrowOddF16 is narrowF16 for results that are not normal numbers of F16.
//
//go:noinline
func narrowOddF16(u uint32) uint16 {
	sign, m := uint16(u>>16&0x8000), u&(1<<31-1)
	switch {
	case m > 0xff<<23:
		return sign | 0x7e00 | uint16(m>>13&0x03ff)
	case m >= 0x477ff000:
		return sign | 0x7c00
	}
	// The last place of 0.5 is that of a subnormal F16, so the addition rounds where it should.
	return sign | uint16(math.Float32bits(math.Float32frombits(m)+0.5)-math.Float32bits(0.5))
}

// widenBF16 is exact. A signalling NaN stays a signalling NaN.
func widenBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// narrowBF16 rounds to nearest even. A NaN keeps its sign and the part of its payload that fits,
// and becomes quiet.
func narrowBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// lostBits are the bits of a float64 that roundToOdd drops; 14 remain.
const lostBits = 1<<39 - 1

// roundToOdd cuts p to 14 bits and sets the last of them if that lost anything. Rounding the result
// to the 11 bits of F16 or the 8 of BF16 is then the same as rounding p at once. The result is
// exact, even where BF16 is subnormal: there F32 has 16 bits more, and values that are too small
// for F32 round to zero in any case.
func roundToOdd(p float64) float32 {
	u := math.Float64bits(p)
	return float32(math.Float64frombits((u | (u&lostBits + lostBits)) &^ lostBits))
}
