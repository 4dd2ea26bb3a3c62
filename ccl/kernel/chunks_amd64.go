//go:build !noasm

package kernel

import "unsafe"

// chunkBytes bounds one call of assembly, in bytes of one operand: a goroutine cannot be stopped
// inside it, and everything that stops the world waits.
const chunkBytes = 256 << 10

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

// preemptible is not inlined, so that it has a prologue, where the scheduler can stop the
// goroutine.
//
//go:noinline
func preemptible(f Func, dst, a, b unsafe.Pointer, n int) { f(dst, a, b, n) }

// inVectors gives f a number of elements that is divisible by multiple, and the rest to the loop in
// Go.
func inVectors(f, rest Func, size, multiple int, dst, a, b unsafe.Pointer, n int) {
	whole := n &^ (multiple - 1)
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

func scaleInVectors(f, rest ScaleFunc, size, multiple int, dst, src unsafe.Pointer, n int, factor float64) {
	whole := n &^ (multiple - 1)
	scaleInChunks(f, size, dst, src, whole, factor)
	if n > whole {
		at := whole * size
		rest(unsafe.Add(dst, at), unsafe.Add(src, at), n-whole, factor)
	}
}

func sumScaleInChunks(f SumScaleFunc, size int, dst, a, b unsafe.Pointer, n int, factor float64) {
	if factor != factor {
		factor = defaultNaN
	}
	for n > chunkBytes/size {
		preemptibleSumScale(f, dst, a, b, chunkBytes/size, factor)
		dst, a, b = unsafe.Add(dst, chunkBytes), unsafe.Add(a, chunkBytes), unsafe.Add(b, chunkBytes)
		n -= chunkBytes / size
	}
	if n > 0 {
		f(dst, a, b, n, factor)
	}
}

//go:noinline
func preemptibleSumScale(f SumScaleFunc, dst, a, b unsafe.Pointer, n int, factor float64) {
	f(dst, a, b, n, factor)
}

func sumScaleInVectors(f, rest SumScaleFunc, size, multiple int, dst, a, b unsafe.Pointer, n int, factor float64) {
	whole := n &^ (multiple - 1)
	sumScaleInChunks(f, size, dst, a, b, whole, factor)
	if n > whole {
		at := whole * size
		rest(unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), n-whole, factor)
	}
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
