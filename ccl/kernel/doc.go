// Package kernel computes on the elements of buffers: reductions of two and of many operands,
// scaling, conversions, copies past the caches. Copy is the copy of what travels between cores.
//
// A kernel never looks at more than the n elements it is given, needs no alignment beyond that of
// the element type, and gives the same bits on every machine: one rounding for each operation, in
// the order of its operands. Floats of 16 and 8 bits are widened to F32, combined, and rounded to
// nearest even. A NaN operand gives a NaN. Min and Max give NaN when an operand is NaN, and order
// -0 before +0. Integers wrap. A Bool result is 0 or 1.
//
// What is too large becomes infinite, but in F8E4M3, which has no infinity, the largest number:
// torch converts so since 2.13, and testdata/float8.txt holds its results.
//
// # NaN
//
// Payloads are part of "the same bits". The rule is the one of x86: a result that is NaN is the
// first NaN operand with its quiet bit set; where no operand is NaN (Inf - Inf, 0 × Inf) it is the
// negative quiet NaN with an empty payload. Min and Max follow it too. A factor of Scale that is
// NaN counts as the latter. Where an element has 8 bits, a NaN that is a result has all of them set
// but the sign, as in torch.
//
// # Many operands, and fused scaling
//
// Reduce of several sources in one pass gives ((s0 ⊕ s1) ⊕ s2) …, rounded to the element type after
// every operator. For short floats one rounding at the end would be closer to the true sum, but
// then the result of a plan would depend on how many of its steps a backend happens to fuse, and
// ranks that fuse differently would no longer agree in their last bits. For the same reason
// SumScale rounds the sum before it multiplies.
//
// # Implementations
//
// Every pair of type and operator has a loop in Go, and these define the bits. For amd64 every pair
// has assembly beside it (AVX-512, or AVX2 with F16C), and so have scaling (8-bit floats by a table
// in Go), conversions of F32 from and to 16 bits, over 3, 4 and 8 sources sums of integers, F64,
// F32 and BF16, products of the latter two and the order of F32 (all else is done in several passes
// over a part that stays in a cache: F16, 8-bit floats and the order of 16-bit floats gain nothing
// from one pass), and sums of floats and copies that store past the caches. Where the CPU has
// AVX512-FP16, its instructions add and multiply F16, sums of 3, 4 and 8 sources in one pass too:
// rounding once is the same there as rounding to F32 and then to F16, since the 24 bits of F32 are
// not fewer than twice 11 and two more; smaller and larger are found by the bits, as in AVX-512.
// Package asmgen writes it: go generate. For arm64 there are sums of F32 and BF16 in NEON, which
// must show at the start of the program that they give the bits of the loops. What is used is
// chosen once from what the CPU offers; the build tag noasm leaves all assembly out. One call of
// assembly is bounded, since a goroutine cannot be stopped inside it.
//
// Hardware BF16 arithmetic flushes subnormals, so only Fast has it, which a group uses as a whole
// (GOCCL_FAST_BF16). A thread whose floating-point control word asks for another rounding or for
// flushing (torch.set_flush_denormal) gets what it asked for, on every path; but the conversions of
// AVX512_BF16 do not heed it. Nor do sums and products of F16, but in the sign of a sum that is
// zero: conversions of F16 and AVX512-FP16 know subnormals whatever that word says (Intel: half
// precision ignores FTZ and DAZ), their rounding to nearest stands in the instruction, and an F32
// that is not exact on the way is too far from half-way between two F16 to become another.
package kernel

//go:generate go run ./asmgen
