package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// FastKernels are those that use arithmetic of the hardware which does not give the bits of the
// others.
type FastKernels struct {
	Pair Func         // as For
	Many ReduceFunc   // as Reduce
	Mean SumScaleFunc // as SumScale
}

var fastBF16 *FastKernels

func fastKernels() *FastKernels {
	if !HasFastBF16() {
		return nil
	}
	f := fastFolder()
	scale := scaleKernel(dtype.BF16, bestISA)
	return &FastKernels{f.pair, f.reduce, func(dst, a, b unsafe.Pointer, n int, factor float64) {
		sumScaleInTiles(f.pair, scale, f.size, dst, a, b, n, factor)
	}}
}

// HasFastBF16 reports whether this machine has kernels of Fast.
func HasFastBF16() bool { return hasFastBF16 && bestISA.whole() == avx512 }

// Fast returns the kernels of AVX512_BF16 for sums of BF16, nil for other pairs and on other
// machines. They round as all others do, but a sum that is subnormal becomes a zero of its sign.
// All ranks of a group must use them, or none.
func Fast(t dtype.Type, op dtype.Op) *FastKernels {
	if t != dtype.BF16 || plainOp(op) != dtype.Sum {
		return nil
	}
	return fastBF16
}
