package main

// float is a floating-point type.
type float struct {
	name   string // as it appears in the names of kernels
	size   int
	suffix string // of the instructions for the type
}

var (
	f32  = float{"F32", 4, "PS"}
	f64  = float{"F64", 8, "PD"}
	f16  = float{"F16", 2, ""}
	bf16 = float{"BF16", 2, ""}
	f8e4 = float{"F8E4M3", 1, ""}
	f8e5 = float{"F8E5M2", 1, ""}
)

var formats = []float{f32, f64, f16, bf16}

// arithmetic returns the body of "ADD" or "MUL" for a format.
func arithmetic(v vector, f float, instruction string) body {
	switch f {
	case f16:
		return arithmeticF16(v, "V"+instruction+"PS")
	case bf16:
		return arithmeticBF16(v, "V"+instruction+"PS")
	case f8e4, f8e5:
		return arithmeticF8(v, f, instruction)
	}
	return simple(v, "VMOVU"+f.suffix, "V"+instruction+f.suffix)
}

// arithmeticF16 computes in F32. The conversions are instructions, which handle subnormals whatever
// the control word says.
func arithmeticF16(v vector, instruction string) body {
	return body{
		step: v.bytes / 2, own: 1, shared: 1,
		load: func(e *emitter, r regs, src string) { e.op("VCVTPH2PS", src, r(0)) },
		combine: func(e *emitter, r regs, src string) {
			e.op("VCVTPH2PS", src, r(1))
			e.op(instruction, r(1), r(0), r(0))
		},
		round: func(e *emitter, r regs) {
			e.op("VCVTPS2PH", imm(0), r(0), v.lower(r(0)))
			e.op("VCVTPH2PS", v.lower(r(0)), r(0))
		},
		store: func(e *emitter, r regs, dst string) { e.op("VCVTPS2PH", imm(0), r(0), dst) },
	}
}

// arithmeticBF16 computes in F32. Each 32-bit lane of a vector holds an even and an odd element.
// Shifted left, the lane is the even element as an F32; with the lower half cleared it is the odd
// one; so no shuffling is needed. r(0) holds the even elements, r(1) the odd ones. A sum s becomes
// the upper half of s + 0x7fff + (bit 16 of s). That leaves a NaN intact: its lower half is 0, as
// both operands' were, so nothing carries.
func arithmeticBF16(v vector, instruction string) body {
	upper, one, half, last := v.constant(0), v.constant(1), v.constant(2), v.constant(3)
	nearest := func(e *emitter, x, spare string) {
		if v.masks() {
			e.op("VPTESTMD", last, x, "K2")
			e.op("VPADDD", half, x, x)
			e.op("VPADDD", one, x, "K2", x)
			return
		}
		e.op("VPSRLD", imm(16), x, spare)
		e.op(v.and, one, spare, spare)
		e.op("VPADDD", half, spare, spare)
		e.op("VPADDD", spare, x, x)
	}
	b := body{
		step: v.bytes, own: 2, shared: 2, oddWords: v.masks(),
		constants: []uint64{every(32, 0xffff0000), every(32, 1), every(32, 0x7fff)},
		load: func(e *emitter, r regs, src string) {
			x := registerOf(e, v, src, r(1))
			e.op("VPSLLD", imm(16), x, r(0))
			e.op(v.and, upper, x, r(1))
		},
		combine: func(e *emitter, r regs, src string) {
			x := registerOf(e, v, src, r(2))
			e.op("VPSLLD", imm(16), x, r(3))
			e.op(instruction, r(3), r(0), r(0))
			e.op(v.and, upper, x, r(2))
			e.op(instruction, r(2), r(1), r(1))
		},
		round: func(e *emitter, r regs) {
			for i := range 2 {
				nearest(e, r(i), r(2+i))
				e.op(v.and, upper, r(i), r(i))
			}
		},
		store: func(e *emitter, r regs, dst string) {
			nearest(e, r(0), r(2))
			nearest(e, r(1), r(3))
			e.op("VPSRLD", imm(16), r(0), r(0))
			if v.masks() {
				e.op("VMOVDQU16", r(1), "K7", r(0))
			} else {
				e.op("VPBLENDW", "$0xaa", r(1), r(0), r(0))
			}
			e.op(v.move, r(0), dst)
		},
	}
	if v.masks() {
		b.constants = append(b.constants, every(32, 1<<16))
	}
	return b
}
