package p2p

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/kernel"
)

// bytes returns the memory of a request.
func (r *Request) bytes() []byte { return unsafe.Slice((*byte)(r.Data), r.Bytes) }

// copyPast copies src to dst, which has room for it, past the caches.
func copyPast(dst, src []byte) {
	kernel.CopyStream(unsafe.Pointer(unsafe.SliceData(dst[:len(src)])), unsafe.Pointer(unsafe.SliceData(src)), len(src))
}
