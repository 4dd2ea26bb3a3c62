//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// at returns memory of the library as one of its types.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// addressOf returns the address of memory that does not move: of block, or of the caller's.
func addressOf[T any](memory *T) uintptr { return uintptr(unsafe.Pointer(memory)) }

// newBlock returns memory outside the Go heap, which may hold pointers to itself and be given to C.
func newBlock[T any]() (*T, error) {
	var t T
	mapped, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(t)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "rdma: no memory for requests")
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(mapped))), nil
}

// freeBlock gives back what newBlock has returned; nil is fine.
func freeBlock[T any](block *T) {
	if block != nil {
		// It cannot fail: this is the slice that was mapped.
		_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(block)), unsafe.Sizeof(*block)))
	}
}

// textAt returns a text of C, of at most limit bytes.
func textAt(address uintptr, limit int) string {
	if address == 0 {
		return ""
	}
	n := 0
	for n < limit && *at[byte](address + uintptr(n)) != 0 {
		n++
	}
	return string(unsafe.Slice(at[byte](address), n))
}
