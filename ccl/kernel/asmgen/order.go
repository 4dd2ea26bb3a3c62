package main

import "fmt"

// Min and Max of floats compare the bits, as the loops in Go do: the control word has no influence,
// and -0 comes before +0. As integers two floats are in order or, where both are negative, in the
// opposite order.

func floatOrder(v vector, f float, larger bool) body {
	switch {
	case f.size <= 2:
		return halfOrder(v, f, larger)
	case v.masks():
		return wideOrder(v, f, larger)
	}
	return narrowOrder(v, f, larger)
}

// wideOrder is for AVX-512. If an operand is NaN, the sum of the operands is the NaN that wins.
func wideOrder(v vector, f float, larger bool) body {
	l := lane[f.size]
	return composed(v, 3, nil, func(e *emitter, a, b string, t regs) {
		e.op("VPMINS"+l, b, a, t(0))
		e.op("VPMAXS"+l, b, a, t(1))
		e.op("VPAND"+l, b, a, t(2))
		e.op(fmt.Sprintf("VPMOV%s2M", l), t(2), "K2")
		e.op("VCMP"+f.suffix, imm(3), b, a, "K3")
		e.op("VADD"+f.suffix, b, a, t(2))
		if larger {
			e.op("VPBLENDM"+l, t(0), t(1), "K2", a)
		} else {
			e.op("VPBLENDM"+l, t(1), t(0), "K2", a)
		}
		e.op("VMOVU"+f.suffix, t(2), "K3", a)
	})
}

// narrowOrder is for AVX2, whose blends use only the sign of a lane.
func narrowOrder(v vector, f float, larger bool) body {
	return composed(v, 3, nil, func(e *emitter, a, b string, t regs) {
		e.op("VPCMPGT"+lane[f.size], b, a, t(0))
		e.op("VPAND", b, a, t(1))
		e.op("VPXOR", t(1), t(0), t(0)) // the sign: a is larger, or both are the same negative number
		e.op("VCMP"+f.suffix, imm(3), b, a, t(1))
		e.op("VADD"+f.suffix, b, a, t(2))
		if larger {
			e.op("VBLENDV"+f.suffix, t(0), a, b, a)
		} else {
			e.op("VBLENDV"+f.suffix, t(0), b, a, a)
		}
		e.op("VBLENDV"+f.suffix, t(1), t(2), a, a)
	})
}

// shortNaN describes the NaN of formats that have no arithmetic of their own to find one with. A
// magnitude above infinity is a NaN; quiet is set in a result.
var shortNaN = map[float]struct{ infinity, quiet uint64 }{
	f16: {0x7c00, 0x0200}, bf16: {0x7f80, 0x0040}, f8e4: {0x7e, 0x7f}, f8e5: {0x7c, 0x7f},
}

// halfOrder is for floats of 16 and 8 bits.
func halfOrder(v vector, f float, larger bool) body {
	l, bits, nan := lane[f.size], 8*f.size, shortNaN[f]
	moved := fmt.Sprintf("VMOVDQU%d", bits)
	constants := []uint64{every(bits, 1<<(bits-1)-1), every(bits, nan.infinity), every(bits, nan.quiet)}
	magnitude, infinite, quieten := v.constant(0), v.constant(1), v.constant(2)
	return composed(v, 3, constants, func(e *emitter, a, b string, t regs) {
		e.op("VPMINS"+l, b, a, t(0))
		e.op("VPMAXS"+l, b, a, t(1))
		e.op(v.and, b, a, t(2))
		usual, swapped := t(0), t(1)
		if larger {
			usual, swapped = t(1), t(0)
		}
		if v.masks() {
			e.op("VPMOV"+l+"2M", t(2), "K2")
			e.op(moved, swapped, "K2", usual)
		} else {
			if f.size == 2 { // a blend uses the sign of a byte
				e.op("VPSRAW", imm(15), t(2), t(2))
			}
			e.op("VPBLENDVB", t(2), swapped, usual, usual)
		}
		// The result so far gives way to b, and that to a, where these are NaN.
		for _, x := range []string{b, a} {
			e.op(v.and, magnitude, x, t(2))
			if v.masks() {
				e.op("VPCMPGT"+l, infinite, t(2), "K2")
				e.op(v.or, quieten, x, x)
				e.op(moved, x, "K2", usual)
			} else {
				e.op("VPCMPGT"+l, infinite, t(2), t(2))
				e.op("VPOR", quieten, x, x)
				e.op("VPBLENDVB", t(2), x, usual, usual)
			}
		}
		e.op(v.move, usual, a)
	})
}
