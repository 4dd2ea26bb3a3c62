package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// Func sets dst[i] = a[i] ⊕ b[i] for n elements. dst may be the same memory as a or b, or separate
// from both.
type Func func(dst, a, b unsafe.Pointer, n int)

// ScaleFunc sets dst[i] = src[i] × factor for n elements, in one rounding from float64. dst may be
// src.
type ScaleFunc func(dst, src unsafe.Pointer, n int, factor float64)

const (
	typeCount = dtype.F8E5M2 + 1
	opCount   = dtype.PremulSum + 1
)

// The tables are filled once, so that For and Scale neither compute nor allocate.
var (
	reductions  [typeCount][opCount]Func
	reducers    [typeCount][opCount]ReduceFunc
	scalings    [typeCount]ScaleFunc
	sumScalings [typeCount]SumScaleFunc
	bestISA     isa
)

func init() { choose() }

// choose fills the tables with the kernels of the best of machineISAs.
func choose() {
	if len(machineISAs) > 0 {
		bestISA = machineISAs[len(machineISAs)-1]
	}
	fastBF16 = fastKernels()
	if c := vectorCopy(bestISA); c != nil {
		streamCopy, streamsCopies = c, true
	}
	for _, t := range shorterFloats {
		converters[dtype.F32][t], converters[t][dtype.F32] =
			converter(dtype.F32, t, bestISA), converter(t, dtype.F32, bestISA)
	}
	for _, t := range dtype.Types() {
		scalings[t], sumScalings[t] = scaling(t), sumScaling(t)
		for _, op := range dtype.Ops() {
			if dtype.Reducible(t, op) == nil {
				reductions[t][op] = reduction(t, op)
				reducers[t][op] = reducer(t, op)
			}
		}
	}
}

// For returns the kernel of a type and an operator, or nil where dtype.Reducible refuses. Avg and
// PremulSum have the kernel of Sum: Scale does their scaling separately.
func For(t dtype.Type, op dtype.Op) Func {
	if t >= typeCount || op >= opCount {
		return nil
	}
	return reductions[t][op]
}

// Scale returns the kernel that multiplies elements of a floating-point type (real or complex), or
// nil for other types.
func Scale(t dtype.Type) ScaleFunc {
	if t >= typeCount {
		return nil
	}
	return scalings[t]
}

// plainOp returns the operator that combines two contributions.
func plainOp(op dtype.Op) dtype.Op {
	if op == dtype.Avg || op == dtype.PremulSum {
		return dtype.Sum
	}
	return op
}

// pairKernel returns the kernel of an instruction set for a unit (dtype.Unit), or the loop in Go
// where the set has none.
func pairKernel(t dtype.Type, op dtype.Op, with isa) Func {
	if v := vectorReduction(t, plainOp(op), with); v != nil {
		return v
	}
	return genericReduction(t, plainOp(op))
}

// reduction chooses the kernel of a pair that dtype.Reducible allows.
func reduction(t dtype.Type, op dtype.Op) Func {
	unit, parts := dtype.Unit(t, op)
	f := pairKernel(unit, op, bestISA)
	if parts == 1 {
		return f
	}
	return inParts(f, parts)
}

// inParts returns the kernel of elements that have several parts each: f takes the parts.
func inParts(f Func, parts int) Func {
	return func(dst, a, b unsafe.Pointer, n int) { f(dst, a, b, n*parts) }
}

func scaling(t dtype.Type) ScaleFunc {
	real, parts := dtype.Real(t)
	f := scaleKernel(real, bestISA)
	if parts == 1 || f == nil {
		return f
	}
	return func(dst, src unsafe.Pointer, n int, factor float64) { f(dst, src, n*parts, factor) }
}

// scaleKernel is for scaling what pairKernel is for reductions.
func scaleKernel(t dtype.Type, with isa) ScaleFunc {
	if v := vectorScaling(t, with); v != nil {
		return v
	}
	return genericScaling(t)
}

// genericReduction returns the loop in Go, or nil where a unit has no such reduction.
func genericReduction(t dtype.Type, op dtype.Op) Func {
	switch t {
	case dtype.F64:
		return floatReduction[float64](op, minF64, maxF64)
	case dtype.F32:
		return floatReduction[float32](op, minF32, maxF32)
	case dtype.F16:
		return halfReduction(op, sumF16, prodF16, minF16, maxF16)
	case dtype.BF16:
		return halfReduction(op, sumBF16, prodBF16, minBF16, maxBF16)
	case dtype.F8E4M3:
		return halfReduction(op, sumF8E4M3, prodF8E4M3, minF8E4M3, maxF8E4M3)
	case dtype.F8E5M2:
		return halfReduction(op, sumF8E5M2, prodF8E5M2, minF8E5M2, maxF8E5M2)
	case dtype.I8:
		return integerReduction[int8](op)
	case dtype.U8:
		return integerReduction[uint8](op)
	case dtype.I16:
		return integerReduction[int16](op)
	case dtype.U16:
		return integerReduction[uint16](op)
	case dtype.I32:
		return integerReduction[int32](op)
	case dtype.U32:
		return integerReduction[uint32](op)
	case dtype.I64:
		return integerReduction[int64](op)
	case dtype.U64:
		return integerReduction[uint64](op)
	case dtype.Bool:
		return boolReduction(op)
	case dtype.C64:
		return complexReduction[float32](op)
	case dtype.C128:
		return complexReduction[float64](op)
	}
	return nil
}

func genericScaling(t dtype.Type) ScaleFunc {
	switch t {
	case dtype.F64:
		return scaleFloats[float64]
	case dtype.F32:
		return scaleFloats[float32]
	case dtype.F16:
		return scaleF16
	case dtype.BF16:
		return scaleBF16
	case dtype.F8E4M3:
		return scaleF8E4M3
	case dtype.F8E5M2:
		return scaleF8E5M2
	}
	return nil
}

// blocks splits n elements into fours, which the compiler indexes without bounds checks, and the
// rest.
func blocks[E any](p unsafe.Pointer, n int) (fours [][4]E, rest []E) {
	if n < 4 { // then there must be no pointer to four of them, not even for a moment
		return nil, unsafe.Slice((*E)(p), n)
	}
	return unsafe.Slice((*[4]E)(p), n/4), unsafe.Slice((*E)(p), n)[n&^3:]
}
