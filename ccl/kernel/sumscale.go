package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// SumScaleFunc sets dst[i] = (a[i] + b[i]) × factor for n elements, with the bits that Sum and then
// Scale give: the sum is rounded to the element type first. dst may be the same memory as a or b,
// or separate from both.
type SumScaleFunc func(dst, a, b unsafe.Pointer, n int, factor float64)

// SumScale returns the kernel that does the last sum of an average and its scaling in one pass, for
// floating-point types (real or complex), or nil for other types.
func SumScale(t dtype.Type) SumScaleFunc {
	if t >= typeCount {
		return nil
	}
	return sumScalings[t]
}

func sumScaling(t dtype.Type) SumScaleFunc {
	real, parts := dtype.Real(t)
	f := sumScaleKernel(real, bestISA)
	if parts == 1 || f == nil {
		return f
	}
	return func(dst, a, b unsafe.Pointer, n int, factor float64) { f(dst, a, b, n*parts, factor) }
}

// sumScaleKernel returns the kernel of an instruction set for a type that is not complex. It
// combines two kernels where there is no better one.
func sumScaleKernel(t dtype.Type, with isa) SumScaleFunc {
	if v := vectorSumScaling(t, with); v != nil {
		return v
	}
	sum, scale, size := pairKernel(t, dtype.Sum, with), scaleKernel(t, with), t.Size()
	if scale == nil {
		return nil
	}
	return func(dst, a, b unsafe.Pointer, n int, factor float64) {
		sumScaleInTiles(sum, scale, size, dst, a, b, n, factor)
	}
}

// sumScaleInTiles scales each tile that it has just summed while the tile is still in the nearest
// cache.
func sumScaleInTiles(sum Func, scale ScaleFunc, size int, dst, a, b unsafe.Pointer, n int, factor float64) {
	for done := 0; done < n; {
		part, at := min(n-done, tileBytes/size), done*size
		to := unsafe.Add(dst, at)
		sum(to, unsafe.Add(a, at), unsafe.Add(b, at), part)
		scale(to, to, part, factor)
		done += part
	}
}

// sumScaleF32 and sumScaleF64 are the loops in Go for the elements that do not fill a vector.

func sumScaleF32(dst, a, b unsafe.Pointer, n int, factor float64) {
	sumScaleInTiles(sumFloats[float32], scaleFloats[float32], 4, dst, a, b, n, factor)
}

func sumScaleF64(dst, a, b unsafe.Pointer, n int, factor float64) {
	sumScaleInTiles(sumFloats[float64], scaleFloats[float64], 8, dst, a, b, n, factor)
}
