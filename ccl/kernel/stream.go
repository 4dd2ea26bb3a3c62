package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// CopyFunc copies n bytes from src to dst, which do not overlap.
type CopyFunc func(dst, src unsafe.Pointer, n int)

// Stream returns a kernel that gives the results of For's and writes dst past the caches. It is for
// operands that are much larger than the caches: not reading dst before writing it saves a third of
// the traffic. A pair without such a kernel gets that of For. When the kernel returns, its stores
// are visible to others like any other stores.
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

var (
	streamCopy    CopyFunc = copyBytes
	streamsCopies bool     // streamCopy stores past the caches
)

// streaming returns the kernel of Stream for a pair that dtype.Reducible allows.
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
