package kernel

import "unsafe"

// CopyFunc copies n bytes from src to dst, which do not overlap.
type CopyFunc func(dst, src unsafe.Pointer, n int)

// CopyStream copies n bytes past the caches. It is for what is much larger than the caches: not
// reading dst before writing it saves a third of the traffic. When it returns, its stores are
// visible to others like any other stores.
func CopyStream(dst, src unsafe.Pointer, n int) { streamCopy(dst, src, n) }

func copyBytes(dst, src unsafe.Pointer, n int) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

var (
	streamCopy    CopyFunc = copyBytes
	streamsCopies bool     // streamCopy stores past the caches
)
