package inproc

import "unsafe"

// alignedMemory returns n bytes of the Go heap, aligned to 64. The garbage collector frees them
// after the last user of a ring has dropped its reference.
func alignedMemory(n int) []byte {
	const align = 64
	memory := make([]byte, n+align-1)
	skip := -int(uintptr(unsafe.Pointer(&memory[0]))) & (align - 1)
	return memory[skip : skip+n : skip+n]
}
