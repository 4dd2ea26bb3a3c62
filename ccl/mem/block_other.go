//go:build !linux

package mem

import "unsafe"

// Off Linux blocks live in the Go heap, which promises less alignment than needed.
func mapBlock(bytes int) ([]byte, error) {
	memory := make([]byte, bytes+Align-1)
	skip := -int(uintptr(unsafe.Pointer(&memory[0]))) & (Align - 1)
	return memory[skip : skip+bytes : skip+bytes], nil
}

func unmapBlock([]byte) error { return nil }
