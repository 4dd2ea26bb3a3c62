package exec

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/exec/p2p"
)

// address is a place in memory that no Go type describes: in buffers of callers, which may be C's,
// or in windows. It must never lie behind the memory, not even unused: the garbage collector would
// find what lies there.
type address = unsafe.Pointer

// plus is the address so many bytes behind another one.
func plus(a address, bytes int) address { return unsafe.Add(a, bytes) }

// bytesAt is memory as bytes.
func bytesAt(a address, n int) []byte { return unsafe.Slice((*byte)(a), n) }

// addressOf is where a slice begins.
func addressOf[T any](s []T) address { return address(unsafe.SliceData(s)) }

// opOf is the operation of a request of the engine's.
func opOf(req *p2p.Request) *Op {
	return (*Op)(unsafe.Add(address(req), -int(unsafe.Offsetof(Op{}.req))))
}
