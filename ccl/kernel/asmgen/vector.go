package main

import "fmt"

// vector is a width of registers, with the instructions whose names depend on it.
type vector struct {
	isa        string // as it appears in names
	full, half string // letters of a register and of its lower half
	bytes      int
	registers  int
	addition   bool // it adds to another vector's instruction set the kernels that are better with it

	move, and, andNot, or, xor string // bitwise
	narrowF64                  string // F64 to F32, in the lower half
	extract, insert            string // of the upper half
}

var avx2 = vector{
	isa: "AVX2", full: "Y", half: "X", bytes: 32, registers: 16,
	move: "VMOVDQU", and: "VPAND", andNot: "VPANDN", or: "VPOR", xor: "VPXOR",
	narrowF64: "VCVTPD2PSY", extract: "VEXTRACTF128", insert: "VINSERTF128",
}

var avx512 = vector{
	isa: "AVX512", full: "Z", half: "Y", bytes: 64, registers: 32,
	move: "VMOVDQU64", and: "VPANDQ", andNot: "VPANDNQ", or: "VPORQ", xor: "VPXORQ",
	narrowF64: "VCVTPD2PS", extract: "VEXTRACTF64X4", insert: "VINSERTF64X4",
}

var avx512FP16 = func() vector {
	v := avx512
	v.isa, v.addition = "AVX512FP16", true
	return v
}()

var vectors = []vector{avx2, avx512, avx512FP16}

// masks reports whether loads and stores of a part of a vector exist.
func (v vector) masks() bool { return v.bytes == 64 }

func (v vector) reg(i int) string { return fmt.Sprintf("%s%d", v.full, i) }

// lower returns the name of the lower half of a register.
func (v vector) lower(reg string) string { return v.half + reg[1:] }

// constant returns the register of the i-th constant. Constants take registers from the end.
func (v vector) constant(i int) string { return v.reg(v.registers - 1 - i) }
