// Package kernel computes on the elements of buffers: reductions of two and of many operands,
// scaling, conversions, and copies past the caches. Copy is for data that travels between cores,
// CopyAcross for memory that another core reads.
//
// A kernel never accesses more than the n elements it is given, needs no alignment beyond that of
// the element type, and gives the same bits on every machine: one rounding for each operation, in
// the order of its operands. Floats of 16 and 8 bits are widened to F32, combined, and rounded to
// nearest even. A NaN operand gives a NaN. Min and Max give NaN when an operand is NaN, and order
// -0 before +0. Integers wrap. A Bool result is 0 or 1.
//
// A result that is too large becomes infinite, except in F8E4M3, which has no infinity: there it
// becomes the largest number. torch has converted this way since 2.13, and testdata/float8.txt
// holds its results.
//
// # NaN
//
// Payloads are part of "the same bits". The rule is that of x86: a NaN result is the first NaN
// operand with its quiet bit set; where no operand is NaN (Inf - Inf, 0 × Inf) it is the negative
// quiet NaN with an empty payload. Min and Max follow the rule too. A factor of Scale that is NaN
// counts as the latter NaN. Where an element has 8 bits, a NaN result has all bits but the sign
// set, as in torch.
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
// Every pair of type and operator has a loop in Go, and these loops define the bits.
//
// For amd64 there is assembly beside them (AVX-512, or AVX2 with F16C): for every pair except
// products of complex numbers; for scaling (8-bit floats use a table in Go); for conversions of F32
// from and to 16 bits; for reductions of 3, 4 and 8 sources, which are sums of integers, F64, F32
// and BF16, products of F32 and BF16, and Min and Max of F32; and for copies that store past the
// caches. Other reductions of many sources are done in several passes over a part that stays in a
// cache: F16, 8-bit floats, and Min and Max of 16-bit floats gain nothing from
// one pass. Where the CPU has AVX512-FP16, its instructions add and multiply F16, including sums of
// 3, 4 and 8 sources in one pass. Rounding once is the same there as rounding to F32 and then to
// F16, since the 24 bits of F32 are not fewer than twice 11 and two more. Min and Max of F16
// compare the bits, as in AVX-512. Package asmgen writes the assembly for amd64: go generate.
//
// For arm64 there are sums of F32 and BF16 in NEON, which must show at the start of the program
// that they give the bits of the loops.
//
// The kernels are chosen once, by the instruction sets of the CPU; the build tag noasm leaves all
// assembly out. One call of assembly is bounded, since a goroutine cannot be stopped inside it.
//
// Hardware BF16 arithmetic flushes subnormals, so only Fast uses it, which a group uses as a whole
// (GOCCL_FAST_BF16). A thread whose floating-point control word asks for another rounding or for
// flushing (torch.set_flush_denormal) gets what it asked for on every path, with two exceptions.
// The conversions of AVX512_BF16 ignore the control word. Sums and products of F16 ignore it too,
// except for the sign of a sum that is zero: conversions of F16 and AVX512-FP16 handle subnormals
// whatever that word says (Intel: half precision ignores FTZ and DAZ), their rounding to nearest is
// part of the instruction, and an F32 that is not exact on the way is too far from half-way between
// two F16 to become another.
package kernel

//go:generate go run ./asmgen
