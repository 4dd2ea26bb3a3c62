//go:build amd64 && !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/goccl/goccl/ccl/dtype"
)

const haveAssembly = true

// bestISA is what this CPU and its operating system offer.
var bestISA = detectISA()

func detectISA() isa {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasF16C:
		return noISA
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL:
		return avx512
	}
	return avx2
}

// chunkBytes bounds one call of assembly, in bytes of one operand: a goroutine cannot be stopped inside it, and everything
// that stops the world waits.
const chunkBytes = 256 << 10

// vectorSum returns the kernel in assembly, nil where there is none.
func vectorSum(t dtype.Type, with isa) Func {
	switch with {
	case avx512:
		switch t {
		case dtype.F32:
			return sumF32AVX512
		case dtype.F64:
			return sumF64AVX512
		case dtype.F16:
			return sumF16AVX512
		case dtype.BF16:
			return sumBF16AVX512
		}
	case avx2:
		switch t {
		case dtype.F32:
			return sumF32AVX2
		case dtype.F64:
			return sumF64AVX2
		case dtype.F16:
			return sumF16AVX2
		case dtype.BF16:
			return sumBF16AVX2
		}
	}
	return nil
}

// vectorScaling returns the kernel in assembly, nil where there is none.
func vectorScaling(t dtype.Type, with isa) ScaleFunc {
	switch with {
	case avx512:
		switch t {
		case dtype.F32:
			return scaleF32AVX512
		case dtype.F64:
			return scaleF64AVX512
		case dtype.F16:
			return scaleF16AVX512
		case dtype.BF16:
			return scaleBF16AVX512
		}
	case avx2:
		switch t {
		case dtype.F32:
			return scaleF32AVX2
		case dtype.F64:
			return scaleF64AVX2
		case dtype.F16:
			return scaleF16AVX2
		case dtype.BF16:
			return scaleBF16AVX2
		}
	}
	return nil
}

func sumF32AVX512(dst, a, b unsafe.Pointer, n int)  { inChunks(addF32AVX512, 4, dst, a, b, n) }
func sumF64AVX512(dst, a, b unsafe.Pointer, n int)  { inChunks(addF64AVX512, 8, dst, a, b, n) }
func sumF16AVX512(dst, a, b unsafe.Pointer, n int)  { inChunks(addF16AVX512, 2, dst, a, b, n) }
func sumBF16AVX512(dst, a, b unsafe.Pointer, n int) { inChunks(addBF16AVX512, 2, dst, a, b, n) }

func sumF32AVX2(dst, a, b unsafe.Pointer, n int) {
	inVectors(addF32AVX2, sumFloats[float32], 4, 8, dst, a, b, n)
}

func sumF64AVX2(dst, a, b unsafe.Pointer, n int) {
	inVectors(addF64AVX2, sumFloats[float64], 8, 4, dst, a, b, n)
}

func sumF16AVX2(dst, a, b unsafe.Pointer, n int) {
	inVectors(addF16AVX2, sumF16, 2, 8, dst, a, b, n)
}

func sumBF16AVX2(dst, a, b unsafe.Pointer, n int) {
	inVectors(addBF16AVX2, sumBF16, 2, 16, dst, a, b, n)
}

func scaleF32AVX512(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInChunks(mulF32AVX512, 4, dst, src, n, factor)
}

func scaleF64AVX512(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInChunks(mulF64AVX512, 8, dst, src, n, factor)
}

func scaleF16AVX512(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInChunks(mulF16AVX512, 2, dst, src, n, factor)
}

func scaleBF16AVX512(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInChunks(mulBF16AVX512, 2, dst, src, n, factor)
}

func scaleF32AVX2(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInVectors(mulF32AVX2, scaleFloats[float32], 4, 8, dst, src, n, factor)
}

func scaleF64AVX2(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInVectors(mulF64AVX2, scaleFloats[float64], 8, 4, dst, src, n, factor)
}

func scaleF16AVX2(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInVectors(mulF16AVX2, scaleF16, 2, 8, dst, src, n, factor)
}

func scaleBF16AVX2(dst, src unsafe.Pointer, n int, factor float64) {
	scaleInVectors(mulBF16AVX2, scaleBF16, 2, 8, dst, src, n, factor)
}

// inChunks calls f for at most chunkBytes at a time.
func inChunks(f Func, size int, dst, a, b unsafe.Pointer, n int) {
	for n > chunkBytes/size {
		preemptible(f, dst, a, b, chunkBytes/size)
		dst, a, b = unsafe.Add(dst, chunkBytes), unsafe.Add(a, chunkBytes), unsafe.Add(b, chunkBytes)
		n -= chunkBytes / size
	}
	if n > 0 {
		f(dst, a, b, n)
	}
}

// preemptible is not inlined for its prologue, which is where the scheduler can stop the goroutine.
//
//go:noinline
func preemptible(f Func, dst, a, b unsafe.Pointer, n int) { f(dst, a, b, n) }

// inVectors gives f whole vectors of width elements, and the rest to the loop in Go.
func inVectors(f, rest Func, size, width int, dst, a, b unsafe.Pointer, n int) {
	whole := n &^ (width - 1)
	inChunks(f, size, dst, a, b, whole)
	if n > whole {
		at := whole * size
		rest(unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), n-whole)
	}
}

func scaleInChunks(f ScaleFunc, size int, dst, src unsafe.Pointer, n int, factor float64) {
	if factor != factor {
		factor = defaultNaN
	}
	for n > chunkBytes/size {
		preemptibleScale(f, dst, src, chunkBytes/size, factor)
		dst, src = unsafe.Add(dst, chunkBytes), unsafe.Add(src, chunkBytes)
		n -= chunkBytes / size
	}
	if n > 0 {
		f(dst, src, n, factor)
	}
}

//go:noinline
func preemptibleScale(f ScaleFunc, dst, src unsafe.Pointer, n int, factor float64) {
	f(dst, src, n, factor)
}

func scaleInVectors(f, rest ScaleFunc, size, width int, dst, src unsafe.Pointer, n int, factor float64) {
	whole := n &^ (width - 1)
	scaleInChunks(f, size, dst, src, whole, factor)
	if n > whole {
		at := whole * size
		rest(unsafe.Add(dst, at), unsafe.Add(src, at), n-whole, factor)
	}
}
