package inproc

import "unsafe"

// alignedMemory is memory of the Go heap, aligned to 64: the last user of a ring frees it by
// forgetting it.
func alignedMemory(n int) []byte {
	const align = 64
	memory := make([]byte, n+align-1)
	skip := -int(uintptr(unsafe.Pointer(&memory[0]))) & (align - 1)
	return memory[skip : skip+n : skip+n]
}
