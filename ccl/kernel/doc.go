// Package kernel computes on the elements of buffers: reductions of two operands, scaling. Copies are Go's copy.
//
// A kernel never looks at more than the n elements it is given, needs no alignment beyond that of the element type, and
// gives the same bits on every machine: one rounding for each operation, in the order of its operands. 16-bit floats
// are widened to F32, combined, and rounded to nearest even. A NaN operand gives a NaN. Min and Max give NaN when an
// operand is NaN, and order -0 before +0. Integers wrap. A Bool result is 0 or 1.
package kernel
