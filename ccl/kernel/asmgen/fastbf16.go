package main

import "fmt"

// This file computes BF16 sums with the conversions of AVX512_BF16, which take a subnormal operand
// as 0 and give 0 for a subnormal result. GOCCL_FAST_BF16 asks for them.

// interleave names a variable of package kernel: the words 0, 16, 1, 17 … of a vector.
const interleave = "·interleavedWords(SB)"

// fastBF16 adds even and odd elements separately, as arithmeticBF16 does.
func fastBF16(v vector) body {
	upper, order := v.constant(0), v.constant(1)
	b := arithmeticBF16(v, "VADDPS") // for its loads and additions
	b.oddWords = false
	b.constants = []uint64{every(32, 0xffff0000), 0}
	b.tables = map[int]string{1: interleave}
	b.round = func(e *emitter, r regs) {
		narrowToBF16(e, r(1), r(0), r(2))
		e.op("VPERMW", r(2), order, r(2))
		e.op("VPSLLD", imm(16), r(2), r(0))
		e.op(v.and, upper, r(2), r(1))
	}
	b.store = func(e *emitter, r regs, dst string) {
		narrowToBF16(e, r(1), r(0), r(0))
		e.op("VPERMW", r(0), order, r(0))
		e.op(v.move, r(0), dst)
	}
	return b
}

// narrowToBF16 writes the BF16 of low, then those of high.
func narrowToBF16(e *emitter, high, low, to string) {
	instruction{"VCVTNE2PS2BF16", 2, 3, 0x72, false}.write(e, low, high, to)
}

// fastSums returns kernels that are in no table: package kernel uses them on demand.
func fastSums(v vector) []entry {
	if !v.masks() {
		return nil
	}
	all := []entry{{
		kernel: kernel{"sumFastBF16" + v.isa + "Block", pair, v, fastBF16(v), 2, 2},
	}}
	for _, sources := range foldSources {
		all = append(all, entry{
			kernel: kernel{fmt.Sprintf("sum%dFastBF16%sBlock", sources, v.isa), fold, v, fastBF16(v), 2, sources},
		})
	}
	return all
}
