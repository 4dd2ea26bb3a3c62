package main

import "fmt"

// addF16 and mulF16 are the arithmetic of AVX512-FP16 on F16. They give the bits of all other
// paths: the F32 in between on those has 24 bits, which is 2 × 11 + 2, so a sum or product of two
// F16 that is first rounded to F32 becomes the same F16. The rounding mode is part of the
// instruction. Neither rounding nor subnormals depend on the control word, as in the conversions
// that the other paths use.
var (
	addF16 = instruction{"VADDPH.RN_SAE", 5, 0, 0x58, true}
	mulF16 = instruction{"VMULPH.RN_SAE", 5, 0, 0x59, true}
)

// arithmeticFP16 keeps the result so far as F16, so that nothing is left to round between two
// operators.
func arithmeticFP16(v vector, i instruction) body {
	b := copyBody(v)
	b.shared = 1
	b.combine = func(e *emitter, r regs, src string) { i.write(e, registerOf(e, v, src, r(1)), r(0), r(0)) }
	return b
}

// halfPrecision returns the kernels that are better with AVX512-FP16 than with AVX-512.
func halfPrecision(v vector) []entry {
	size := f16.size
	sums := entry{types: []string{f16.name}, ops: []string{"Sum"}}
	for _, sources := range foldSources {
		k := kernel{fmt.Sprintf("sum%d%s%sBlock", sources, f16.name, v.isa),
			fold, v, arithmeticFP16(v, addF16), size, sources}
		sums.more = append(sums.more, k)
	}
	sums.kernel, sums.more = sums.more[0], sums.more[1:]
	all := []entry{sums}
	for _, o := range []struct {
		op, name string
		with     instruction
	}{{"Sum", "sum", addF16}, {"Prod", "prod", mulF16}} {
		all = append(all, entry{
			kernel: kernel{o.name + f16.name + v.isa + "Block", pair, v, arithmeticFP16(v, o.with), size, 2},
			types:  []string{f16.name},
			ops:    []string{o.op},
			rest:   restOf(o.name, f16),
		})
	}
	return all
}
