package main

// The arithmetic of 8-bit floats is done in F32, and the conversions go by way of F16. E5M2 is the
// upper half of an F16. E4M3 has one exponent bit less, so the F16 with the same fields is 2⁻⁸ of
// the value, subnormals included. Rounding to F16 on the way back does no harm: F16 has enough
// additional bits that the second rounding gives the result of a single one.
//
// Each 16-bit lane of a vector holds an even and an odd element. r(0) and r(1) hold the even
// elements, r(2) and r(3) the odd ones.

// float8 describes how a format lies in an F16.
type float8 struct {
	constants []uint64
	// word sets w to the F16 of the elements in the upper (odd) or lower bytes of x.
	word func(e *emitter, x, w, t string, odd bool)
	// bytes rounds the F16 in w to elements in the upper bytes of the lanes.
	bytes func(e *emitter, w, t, u string)
}

func layoutE5M2(v vector) float8 {
	upper, half, nan := v.constant(0), v.constant(1), v.constant(2)
	return float8{
		constants: []uint64{every(16, 0xff00), every(16, 0x7f), every(16, 0xfbfe)},
		word: func(e *emitter, x, w, t string, odd bool) {
			if odd {
				e.op(v.and, upper, x, w)
			} else {
				e.op("VPSLLW", imm(8), x, w)
			}
		},
		bytes: func(e *emitter, w, t, u string) {
			e.op("VPSLLW", imm(7), w, t)
			e.op("VPSRLW", imm(15), t, t) // bit 8
			e.op("VPADDW", half, w, w)
			e.op("VPADDW", t, w, w)
			e.op("VPADDW", w, w, t)
			e.op("VPSUBUSW", nan, t, t) // not 0 for a NaN, whose last bit it sets
			e.op(v.or, t, w, w)
		},
	}
}

func layoutE4M3(v vector) float8 {
	fields, last, top := v.constant(1), v.constant(2), v.constant(3)
	half, nan, largest, sign := v.constant(4), v.constant(5), v.constant(6), v.constant(7)
	return float8{
		constants: []uint64{every(16, 0xff00), every(16, 0xbf80), every(16, 0x80), every(16, 0x4000),
			every(16, 0x3f), every(16, 0xfe80), every(16, 0x7eff), every(16, 0x8000)},
		word: func(e *emitter, x, w, t string, odd bool) {
			if odd {
				e.op("VPSRAW", imm(1), x, w)
			} else {
				e.op("VPSLLW", imm(8), x, w)
				e.op("VPSRAW", imm(1), w, w)
			}
			e.op(v.and, fields, w, w)
			// This carries into the top of the exponent if all bits of the element are set, which
			// is a NaN.
			e.op("VPADDW", last, w, t)
			v.orAnd(e, top, t, w)
		},
		bytes: func(e *emitter, w, t, u string) {
			e.op("VPSLLW", imm(8), w, t)
			e.op("VPSRLW", imm(15), t, t) // bit 7
			e.op("VPADDW", half, w, u)
			e.op("VPADDW", t, u, u)
			e.op("VPADDW", u, u, u) // the sign drops out, and the last bit becomes bit 8
			e.op("VPSUBUSW", nan, u, t)
			e.op("VPMINUW", largest, u, u)
			e.op(v.or, t, u, u)
			v.orAnd(e, sign, w, u)
			e.op(v.move, u, w)
		},
	}
}

// orAnd sets w to w | t & mask, and overwrites t.
func (v vector) orAnd(e *emitter, mask, t, w string) {
	if v.masks() {
		e.op("VPTERNLOGD", "$0xf8", mask, t, w)
		return
	}
	e.op(v.and, mask, t, t)
	e.op(v.or, t, w, w)
}

// arithmeticF8 returns the body of "ADD" or "MUL" for an 8-bit format.
func arithmeticF8(v vector, f float, instruction string) body {
	layout := layoutE5M2(v)
	if f == f8e4 {
		layout = layoutE4M3(v)
	}
	b := body{step: v.bytes, own: 4, shared: 3, constants: layout.constants}
	scaled := ""
	if f == f8e4 && instruction == "MUL" {
		scaled = v.constant(len(b.constants))
		// 2⁸, because both operands are 2⁻⁸ of their values.
		b.constants = append(b.constants, every(32, 0x43800000))
	}
	b.load = func(e *emitter, r regs, src string) {
		x := registerOf(e, v, src, r(3))
		for _, odd := range []bool{false, true} {
			low, high := r(0), r(1)
			if odd {
				low, high = r(2), r(3)
			}
			layout.word(e, x, high, low, odd)
			e.op("VCVTPH2PS", v.lower(high), low)
			e.op(v.extract, imm(1), high, v.lower(high))
			e.op("VCVTPH2PS", v.lower(high), high)
		}
	}
	b.combine = func(e *emitter, r regs, src string) {
		x, w, t := registerOf(e, v, src, r(4)), r(5), r(6)
		for i, odd := range []bool{false, true} {
			layout.word(e, x, w, t, odd)
			for j := range 2 {
				to := r(2*i + j)
				if j == 1 {
					e.op(v.extract, imm(1), w, v.lower(w))
				}
				e.op("VCVTPH2PS", v.lower(w), t)
				e.op("V"+instruction+"PS", t, to, to)
				if scaled != "" {
					e.op("VMULPS", scaled, to, to)
				}
			}
		}
	}
	b.store = func(e *emitter, r regs, dst string) {
		for i := 0; i < 4; i += 2 {
			w, other := r(i), r(i+1)
			e.op("VCVTPS2PH", imm(0), w, v.lower(w))
			e.op("VCVTPS2PH", imm(0), other, v.lower(other))
			e.op(v.insert, imm(1), v.lower(other), w, w)
			layout.bytes(e, w, other, r(4))
		}
		e.op("VPSRLW", imm(8), r(0), r(0))
		v.orAnd(e, v.constant(0), r(2), r(0))
		e.op(v.move, r(0), dst)
	}
	return b
}
