package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// FastKernels are kernels that use hardware arithmetic whose bits differ from those of all other
// kernels.
type FastKernels struct {
	Pair Func         // like For
	Many ReduceFunc   // like Reduce
	Mean SumScaleFunc // like SumScale
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

// HasFastBF16 reports whether this machine has the kernels that Fast returns.
func HasFastBF16() bool { return hasFastBF16 && bestISA.whole() == avx512 }

// Fast returns the kernels of AVX512_BF16 for sums of BF16, or nil for other pairs and on other
// machines. They round as all other kernels do, but a subnormal sum becomes a zero of its sign.
// Either all ranks of a group must use them, or none.
func Fast(t dtype.Type, op dtype.Op) *FastKernels {
	if t != dtype.BF16 || plainOp(op) != dtype.Sum {
		return nil
	}
	return fastBF16
}
