package exec

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/program"
)

// Call is what a rank requests, and Block is one contiguous part of its buffers.
type (
	Call  = program.Call
	Block = program.Block
)

// address is a place in memory that no Go type describes: in a caller's buffer, which may be memory
// of C, or in a window. It must never point past the end of that memory, even if it is not used:
// the garbage collector would take it for a pointer to whatever lies there.
type address = unsafe.Pointer

// plus returns the address bytes after a.
func plus(a address, bytes int) address { return unsafe.Add(a, bytes) }

// bytesAt returns the n bytes at a as a slice.
func bytesAt(a address, n int) []byte { return unsafe.Slice((*byte)(a), n) }

// addressOf returns the address of the first element of s.
func addressOf[T any](s []T) address { return address(unsafe.SliceData(s)) }

// keyedOf returns the message of a keyed operation that a request of the p2p engine belongs to.
func keyedOf(req *p2p.Request) *keyedMessage { return (*keyedMessage)(address(req)) }

// opOf returns the operation that a request of the p2p engine belongs to.
func opOf(req *p2p.Request) *Op {
	return (*Op)(unsafe.Add(address(req), -int(unsafe.Offsetof(Op{}.req))))
}
