package main

// Scaling multiplies in F64, with the element as the first source, so that its NaN wins. For 16-bit
// floats two roundings would not be the same as one, so the product is rounded to odd before it
// becomes an F32; see roundToOdd.

const lostBits = 1<<39 - 1

// scaling returns the multiplication by the factor, which is in the register after the constants of
// the body.
func scaling(v vector, f float) body {
	switch f {
	case f64:
		b := simple(v, "VMOVUPD", "")
		b.scale = func(e *emitter, r regs) { e.op("VMULPD", v.constant(0), r(0), r(0)) }
		return b
	case f32: // widened when it is loaded, which costs no shuffle
		return body{
			step: v.bytes / 2, own: 1,
			load:  func(e *emitter, r regs, src string) { e.op("VCVTPS2PD", src, r(0)) },
			scale: func(e *emitter, r regs) { e.op("VMULPD", v.constant(0), r(0), r(0)) },
			store: func(e *emitter, r regs, dst string) {
				e.op(v.narrowF64, r(0), v.lower(r(0)))
				e.op("VMOVUPS", v.lower(r(0)), dst)
			},
		}
	}
	b := arithmetic(v, f, "ADD") // for its loads and stores
	lost := v.constant(len(b.constants))
	b.constants = append(b.constants, lostBits)
	factor := v.constant(len(b.constants))
	first := b.own + b.shared
	b.shared += 3
	b.scale = func(e *emitter, r regs) {
		spare := []string{r(first), r(first + 1), r(first + 2)}
		product(e, v, r(0), spare, factor, lost)
		if f == bf16 {
			product(e, v, r(1), spare, factor, lost)
		}
	}
	return b
}

// sumScaling returns the sum, rounded and then multiplied, for F32 and F64. For 16-bit floats the
// chain of instructions of an element is so long that one pass is slower than two.
func sumScaling(v vector, f float) body {
	b := scaling(v, f)
	sum, half := "VADD"+f.suffix, func(r string) string { return r }
	if f == f32 { // as many elements as a vector has F64
		half = v.lower
		b.load = func(e *emitter, r regs, src string) { e.op("VMOVUPS", src, half(r(0))) }
		b.scale = func(e *emitter, r regs) {
			e.op("VCVTPS2PD", half(r(0)), r(0))
			e.op("VMULPD", v.constant(0), r(0), r(0))
		}
	}
	b.combine = func(e *emitter, r regs, src string) { e.op(sum, src, half(r(0)), half(r(0))) }
	return b
}

// product multiplies the F32 in x by the factor, half of them at a time, and rounds the products to
// odd.
func product(e *emitter, v vector, x string, spare []string, factor, lost string) {
	s, low, high := spare[0], spare[1], spare[2]
	e.op(v.extract, imm(1), x, v.lower(s))
	e.op("VCVTPS2PD", v.lower(x), low)
	e.op("VCVTPS2PD", v.lower(s), high)
	for _, p := range []string{low, high} {
		e.op("VMULPD", factor, p, p)
		e.op(v.and, lost, p, s)
		e.op("VPADDQ", lost, s, s)
		e.op(v.or, s, p, p)
		e.op(v.andNot, p, lost, p)
	}
	e.op(v.narrowF64, low, v.lower(x))
	e.op(v.narrowF64, high, v.lower(s))
	e.op(v.insert, imm(1), v.lower(s), x, x)
}
