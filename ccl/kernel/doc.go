// Package kernel computes on the elements of buffers: reductions of two and of many operands, scaling, copies past the caches.
// Copy is the copy of what travels between cores.
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
// # Many operands, and fused scaling
//
// Reduce of several sources in one pass gives ((s0 ⊕ s1) ⊕ s2) …, rounded to the element type after every operator. For 16-bit
// floats one rounding at the end would be closer to the true sum, but then the result of a plan would depend on how many
// of its steps a backend happens to fuse, and ranks that fuse differently would no longer agree in their last bits. For the
// same reason SumScale rounds the sum before it multiplies.
//
// # Implementations
//
// Every pair of type and operator has a loop in Go, and these define the bits. For amd64 every pair has assembly beside it
// (AVX-512, or AVX2 with F16C), and so have scaling, sums of F32, F64 and BF16 over 3, 4 and 8 sources (all else is done in
// several passes over a part that stays in a cache), and sums of floats and copies that store past the caches. Package
// asmgen writes it: go generate. For arm64 there are sums of F32 and BF16 in NEON, which must show at the start of the
// program that they give the bits of the loops. What is used is chosen once from what the CPU offers; the build tag
// noasm leaves all assembly out. One call of assembly is bounded, since a goroutine cannot be stopped inside it.
//
// Hardware BF16 arithmetic is not used, because it flushes subnormals. A thread whose floating-point control word
// asks for another rounding or for flushing (torch.set_flush_denormal) gets what it asked for, on every path.
package kernel

//go:generate go run ./asmgen
