package kernel

import (
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// TestPointersStayInside runs all loops on objects of the heap that they fill to the last byte.
// With -race the compiler checks that no pointer leaves its object, not even to one past its end.
func TestPointersStayInside(t *testing.T) {
	object := func(n int) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(make([]byte, n))) }
	for _, bytes := range []int{64, 256, 4 << 10, 32 << 10, 512 << 10, 1 << 20} { // sizes of the allocator
		for _, ty := range dtype.Types() {
			n := bytes / ty.Size()
			for _, op := range dtype.Ops() {
				if f := For(ty, op); f != nil {
					f(object(bytes), object(bytes), object(bytes), n)
				}
			}
			if f := Scale(ty); f != nil {
				f(object(bytes), object(bytes), n, 0.5)
			}
			if f := SumScale(ty); f != nil {
				f(object(bytes), object(bytes), object(bytes), n, 0.5)
			}
			for _, src := range dtype.Types() {
				n := bytes / max(ty.Size(), src.Size())
				if f := Convert(ty, src); f != nil {
					f(object(n*ty.Size()), object(n*src.Size()), n)
				}
			}
		}
		CopyStream(object(bytes), object(bytes), bytes)
	}
}
