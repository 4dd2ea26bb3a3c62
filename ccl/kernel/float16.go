package kernel

import "math"

// widenF16 is exact; a signalling NaN stays one.
func widenF16(h uint16) float32 {
	m := uint32(h & 0x7fff)
	if m-0x0400 >= 0x7800 {
		return widenOddF16(h)
	}
	return math.Float32frombits(uint32(h&0x8000)<<16 | (m<<13 + 112<<23))
}

// widenOddF16 is widenF16 for zero, subnormals, infinities and NaN, apart so that widenF16 can be inlined.
func widenOddF16(h uint16) float32 {
	sign, fraction := uint32(h&0x8000)<<16, uint32(h&0x03ff)
	if h&0x7c00 != 0 {
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
}

// narrowF16 rounds to nearest even. A NaN keeps its sign and what fits of its payload, and becomes quiet.
func narrowF16(f float32) uint16 {
	u := math.Float32bits(f)
	m := u & (1<<31 - 1)
	if m-0x38800000 >= 0x477ff000-0x38800000 { // from 2⁻¹⁴ up to where rounding reaches infinity
		return narrowOddF16(u)
	}
	return uint16(u>>16&0x8000 | (m-112<<23+0xfff+m>>13&1)>>13)
}

// narrowOddF16 is narrowF16 for what is no normal number of F16.
func narrowOddF16(u uint32) uint16 {
	sign, m := uint16(u>>16&0x8000), u&(1<<31-1)
	switch {
	case m > 0xff<<23:
		return sign | 0x7e00 | uint16(m>>13&0x03ff)
	case m >= 0x477ff000:
		return sign | 0x7c00
	}
	// The last place of 0.5 is the last place of a subnormal F16, so the addition rounds where it should.
	return sign | uint16(math.Float32bits(math.Float32frombits(m)+0.5)-math.Float32bits(0.5))
}

// widenBF16 is exact; a signalling NaN stays one.
func widenBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// narrowBF16 rounds to nearest even. A NaN keeps its sign and what fits of its payload, and becomes quiet.
func narrowBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// roundToOdd rounds towards zero and sets the last bit if that lost anything. Rounding the result to a format at least two
// bits shorter is then the same as rounding p at once.
func roundToOdd(p float64) float32 {
	f := float32(p)
	wide := float64(f)
	if wide == p || p != p {
		return f
	}
	u := math.Float32bits(f)
	if math.Abs(wide) > math.Abs(p) {
		u--
	}
	return math.Float32frombits(u | 1)
}
