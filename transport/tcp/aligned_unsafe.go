package tcp

import "unsafe"

// aligned returns n bytes that start at a multiple of 64.
func aligned(n int) []byte {
	b := make([]byte, n+63)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & 63)
	return b[skip : skip+n : skip+n]
}
