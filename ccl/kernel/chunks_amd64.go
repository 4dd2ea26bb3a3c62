//go:build !noasm

package kernel

import "unsafe"

// chunkBytes bounds one call of assembly, in bytes of one operand: a goroutine cannot be stopped
// inside it, and everything that stops the world waits.
const chunkBytes = 256 << 10

// inVectors returns the kernel that gives f at most chunkBytes at a time, and a number of elements
// that is divisible by multiple. The loop in Go does the rest; there is none if multiple is 1.
func inVectors(f, rest Func, size, multiple int) Func {
	most := chunkBytes / size
	return func(dst, a, b unsafe.Pointer, n int) {
		left := n & (multiple - 1)
		for n -= left; n > most; n -= most {
			preemptible(f, dst, a, b, most)
			dst, a, b = unsafe.Add(dst, chunkBytes), unsafe.Add(a, chunkBytes), unsafe.Add(b, chunkBytes)
		}
		if n > 0 {
			f(dst, a, b, n)
		}
		if left > 0 {
			at := n * size
			rest(unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), left)
		}
	}
}

// preemptible is not inlined, so that it has a prologue, where the scheduler can stop the
// goroutine.
//
//go:noinline
func preemptible(f Func, dst, a, b unsafe.Pointer, n int) { f(dst, a, b, n) }

func scaleInVectors(f, rest ScaleFunc, size, multiple int) ScaleFunc {
	most := chunkBytes / size
	return func(dst, src unsafe.Pointer, n int, factor float64) {
		if factor != factor {
			factor = defaultNaN
		}
		left := n & (multiple - 1)
		for n -= left; n > most; n -= most {
			preemptibleScale(f, dst, src, most, factor)
			dst, src = unsafe.Add(dst, chunkBytes), unsafe.Add(src, chunkBytes)
		}
		if n > 0 {
			f(dst, src, n, factor)
		}
		if left > 0 {
			at := n * size
			rest(unsafe.Add(dst, at), unsafe.Add(src, at), left, factor)
		}
	}
}

//go:noinline
func preemptibleScale(f ScaleFunc, dst, src unsafe.Pointer, n int, factor float64) {
	f(dst, src, n, factor)
}

func sumScaleInVectors(f, rest SumScaleFunc, size, multiple int) SumScaleFunc {
	most := chunkBytes / size
	return func(dst, a, b unsafe.Pointer, n int, factor float64) {
		if factor != factor {
			factor = defaultNaN
		}
		left := n & (multiple - 1)
		for n -= left; n > most; n -= most {
			preemptibleSumScale(f, dst, a, b, most, factor)
			dst, a, b = unsafe.Add(dst, chunkBytes), unsafe.Add(a, chunkBytes), unsafe.Add(b, chunkBytes)
		}
		if n > 0 {
			f(dst, a, b, n, factor)
		}
		if left > 0 {
			at := n * size
			rest(unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), left, factor)
		}
	}
}

//go:noinline
func preemptibleSumScale(f SumScaleFunc, dst, a, b unsafe.Pointer, n int, factor float64) {
	f(dst, a, b, n, factor)
}

const (
	lineBytes   = 64
	streamBytes = 4 << 10 // less than this is not worth the fence
)

// toLine returns the number of bytes from p to the next start of a cache line.
func toLine(p unsafe.Pointer) int { return int(-uintptr(p) & (lineBytes - 1)) }

func copyInLines(f CopyFunc, dst, src unsafe.Pointer, n int) {
	if n < streamBytes {
		copyBytes(dst, src, n)
		return
	}
	head := toLine(dst)
	copyBytes(dst, src, head)
	dst, src, n = unsafe.Add(dst, head), unsafe.Add(src, head), n-head
	for ; n > chunkBytes; n -= chunkBytes {
		preemptibleCopy(f, dst, src, chunkBytes)
		dst, src = unsafe.Add(dst, chunkBytes), unsafe.Add(src, chunkBytes)
	}
	whole := n &^ (lineBytes - 1)
	f(dst, src, whole)
	if n > whole {
		copyBytes(unsafe.Add(dst, whole), unsafe.Add(src, whole), n-whole)
	}
}

//go:noinline
func preemptibleCopy(f CopyFunc, dst, src unsafe.Pointer, n int) { f(dst, src, n) }
