package main

import "fmt"

// lane maps the size of an integer to its letter in the names of instructions.
var lane = map[int]string{1: "B", 2: "W", 4: "D", 8: "Q"}

func integerSum(v vector, size int) body { return simple(v, v.move, "VPADD"+lane[size]) }

func integerProd(v vector, size int) body {
	switch {
	case size == 1:
		return composed(v, 1, []uint64{every(16, 0xff)}, func(e *emitter, a, b string, t regs) {
			e.op("VPMULLW", b, a, t(0)) // the even bytes
			e.op("VPSRLW", imm(8), a, a)
			e.op("VPSRLW", imm(8), b, b)
			e.op("VPMULLW", b, a, a)
			e.op("VPSLLW", imm(8), a, a)
			e.op(v.and, v.constant(0), t(0), t(0))
			e.op(v.or, t(0), a, a)
		})
	case size == 8 && !v.masks():
		return composed(v, 2, nil, func(e *emitter, a, b string, t regs) {
			e.op("VPSHUFD", "$0xb1", b, t(0))
			e.op("VPMULLD", t(0), a, t(0)) // low × high and high × low
			e.op("VPSRLQ", imm(32), t(0), t(1))
			e.op("VPADDD", t(0), t(1), t(1))
			e.op("VPSLLQ", imm(32), t(1), t(1))
			e.op("VPMULUDQ", b, a, a)
			e.op("VPADDQ", t(1), a, a)
		})
	}
	return simple(v, v.move, "VPMULL"+lane[size])
}

// integerOrder returns the minimum or, with larger set, the maximum.
func integerOrder(v vector, size int, signed, larger bool) body {
	if size == 8 && !v.masks() {
		return quadOrder(v, signed, larger)
	}
	name, sign := "MIN", "U"
	if larger {
		name = "MAX"
	}
	if signed {
		sign = "S"
	}
	return simple(v, v.move, fmt.Sprintf("VP%s%s%s", name, sign, lane[size]))
}

// quadOrder is for AVX2, which compares 64-bit integers only as signed ones.
func quadOrder(v vector, signed, larger bool) body {
	var constants []uint64
	if !signed {
		constants = []uint64{1 << 63}
	}
	return composed(v, 2, constants, func(e *emitter, a, b string, t regs) {
		if signed {
			e.op("VPCMPGTQ", b, a, t(0))
		} else {
			e.op("VPXOR", v.constant(0), a, t(0))
			e.op("VPXOR", v.constant(0), b, t(1))
			e.op("VPCMPGTQ", t(1), t(0), t(0))
		}
		// t(0) is set where a > b.
		if larger {
			e.op("VBLENDVPD", t(0), a, b, a)
		} else {
			e.op("VBLENDVPD", t(0), b, a, a)
		}
	})
}

// logical works on bytes that are 0 or not; the minimum of such a byte and 1 is its truth value.
func logical(v vector, op string) body {
	return composed(v, 0, []uint64{every(8, 1)}, func(e *emitter, a, b string, _ regs) {
		switch op {
		case "or":
			e.op(v.or, b, a, a)
			e.op("VPMINUB", v.constant(0), a, a)
		case "and":
			e.op("VPMINUB", b, a, a)
			e.op("VPMINUB", v.constant(0), a, a)
		case "xor":
			e.op("VPMINUB", v.constant(0), a, a)
			e.op("VPMINUB", v.constant(0), b, b)
			e.op(v.xor, b, a, a)
		}
	})
}
