// Package kernel computes on the elements of buffers: reductions of two operands, scaling. Copies are Go's copy.
//
// A kernel never looks at more than the n elements it is given, needs no alignment beyond that of the element type, and
// gives the same bits on every machine: one rounding for each operation, in the order of its operands. 16-bit floats
// are widened to F32, combined, and rounded to nearest even. A NaN operand gives a NaN. Min and Max give NaN when an
// operand is NaN, and order -0 before +0. Integers wrap. A Bool result is 0 or 1.
//
// # NaN
//
// Payloads are part of "the same bits". The rule is the one of x86: a result that is NaN is the first NaN operand with its
// quiet bit set; where no operand is NaN (Inf - Inf, 0 × Inf) it is the negative quiet NaN with an empty payload. Min and
// Max follow it too. A factor of Scale that is NaN counts as the latter.
//
// # Implementations
//
// Every pair of type and operator has a loop in Go, and these define the bits. Sum and Scale of floats have assembly for
// amd64 beside it (AVX-512, or AVX2 with F16C), chosen once from what the CPU offers; the build tag noasm leaves
// it out. Hardware BF16 arithmetic is not used, because it flushes subnormals. A thread whose floating-point control word
// asks for another rounding or for flushing (torch.set_flush_denormal) gets what it asked for, on every path.
package kernel
