package main

import (
	"bytes"
	"fmt"
)

// conversion is an assembly function that changes the type of elements. Their number is a multiple
// of the number of F32 in a vector.
type conversion struct {
	name      string
	constants []uint64
	from, to  int // bytes of an element
	one       func(e *emitter, r regs, src, dst string)
}

func conversions(v vector) []conversion {
	quiet, one, half := v.constant(0), v.constant(1), v.constant(2)
	return []conversion{
		{"widenF16" + v.isa + "Block", nil, 2, 4, func(e *emitter, r regs, src, dst string) {
			e.op("VCVTPH2PS", src, r(0))
			e.op("VMOVUPS", r(0), dst)
		}},
		{"widenBF16" + v.isa + "Block", nil, 2, 4, func(e *emitter, r regs, src, dst string) {
			e.op("VPMOVZXWD", src, r(0))
			e.op("VPSLLD", imm(16), r(0), r(0))
			e.op(v.move, r(0), dst)
		}},
		{"narrowF16" + v.isa + "Block", nil, 4, 2, func(e *emitter, r regs, src, dst string) {
			e.op("VMOVUPS", src, r(0))
			e.op("VCVTPS2PH", imm(0), r(0), dst)
		}},
		// The upper half of x + 0x7fff + (bit 16 of x) or, where x is a NaN, of x with the quiet
		// bit set.
		{"narrowBF16" + v.isa + "Block", []uint64{every(32, 0x00400000), every(32, 1), every(32, 0x7fff)}, 4, 2,
			func(e *emitter, r regs, src, dst string) {
				e.op("VMOVUPS", src, r(0))
				e.op("VPSRLD", imm(16), r(0), r(1))
				e.op(v.and, one, r(1), r(1))
				e.op("VPADDD", half, r(1), r(1))
				e.op("VPADDD", r(0), r(1), r(1))
				e.op(v.or, quiet, r(0), r(2))
				if v.masks() {
					e.op("VCMPPS", imm(3), r(0), r(0), "K1")
					e.op("VMOVDQU32", r(2), "K1", r(1))
					e.op("VPSRLD", imm(16), r(1), r(1))
					e.op("VPMOVDW", r(1), dst)
					return
				}
				e.op("VCMPPS", imm(3), r(0), r(0), r(0))
				e.op("VPBLENDVB", r(0), r(2), r(1), r(1))
				e.op("VPSRLD", imm(16), r(1), r(1))
				e.op(v.extract, imm(1), r(1), v.lower(r(2)))
				e.op("VPACKUSDW", v.lower(r(2)), v.lower(r(1)), v.lower(r(1)))
				e.op("VMOVDQU", v.lower(r(1)), dst)
			}},
	}
}

const inFlight = 4 // vectors, of at most three registers each

func (c conversion) write(e *emitter, v vector) {
	lanes := v.bytes / 4
	fmt.Fprintf(e, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n",
		c.name, signatures[move].parameters, c.name, signatures[move].arguments)
	e.op("MOVQ", "dst+0(FP)", dstPointer)
	e.op("MOVQ", "src+8(FP)", srcPointers[0])
	e.op("MOVQ", "n+16(FP)", left)
	kernel{vector: v, body: body{constants: c.constants}}.writeConstants(e)
	vectors := func(count int) {
		for u := range count {
			c.one(e, func(i int) string { return v.reg(3*u + i) },
				fmt.Sprintf("%d(%s)", u*lanes*c.from, srcPointers[0]), fmt.Sprintf("%d(%s)", u*lanes*c.to, dstPointer))
		}
		e.op("ADDQ", imm(count*lanes*c.from), srcPointers[0])
		e.op("ADDQ", imm(count*lanes*c.to), dstPointer)
		e.op("SUBQ", imm(count*lanes), left)
	}
	e.op("SUBQ", imm(inFlight*lanes), left)
	e.op("JL", "fewer")
	e.label("several")
	vectors(inFlight)
	e.op("JGE", "several")
	e.label("fewer")
	e.op("ADDQ", imm((inFlight-1)*lanes), left)
	e.op("JL", "done")
	e.label("one")
	vectors(1)
	e.op("JGE", "one")
	e.label("done")
	e.op("VZEROUPPER")
	e.op("RET")
}

// writeConversions returns the assembly of all conversions and writes their declarations.
func writeConversions(v vector, declarations *bytes.Buffer) []byte {
	var e emitter
	e.WriteString(notice + "\n#include \"textflag.h\"\n\n// F32 from and to 16-bit floats.\n")
	for _, c := range conversions(v) {
		c.write(&e, v)
		fmt.Fprintf(declarations, "\n// %s needs a multiple of %d.\n//\n//go:noescape\nfunc %s(%s)\n",
			c.name, v.bytes/4, c.name, signatures[move].parameters)
	}
	return []byte(e.String())
}
