package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// CopyFunc copies n bytes from src to dst, which do not overlap.
type CopyFunc func(dst, src unsafe.Pointer, n int)

// Stream returns a kernel that gives what For's gives and writes dst past the caches, for operands
// that are much larger than these: a dst that is not read before it is written saves a third of the
// traffic. Where there is none of its own it is the one of For. What it has written is visible to
// others like any other store when it returns.
func Stream(t dtype.Type, op dtype.Op) Func {
	if t >= typeCount || op >= opCount {
		return nil
	}
	return streams[t][op]
}

// CopyStream copies n bytes past the caches, as Stream does.
func CopyStream(dst, src unsafe.Pointer, n int) { streamCopy(dst, src, n) }

func copyBytes(dst, src unsafe.Pointer, n int) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

var streamCopy CopyFunc = copyBytes

// streaming chooses the kernel of Stream for a pair that dtype.Reducible allows.
func streaming(t dtype.Type, op dtype.Op) Func {
	real, parts := dtype.Real(t)
	f := vectorStream(real, bestISA)
	switch {
	case f == nil || plainOp(op) != dtype.Sum:
		return reductions[t][op]
	case parts == 1:
		return f
	}
	return func(dst, a, b unsafe.Pointer, n int) { f(dst, a, b, n*parts) }
}
