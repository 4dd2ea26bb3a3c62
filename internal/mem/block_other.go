//go:build !linux

package mem

import "unsafe"

// Outside Linux, blocks are in the Go heap, which guarantees less alignment than is needed.
func mapBlock(bytes int) ([]byte, error) {
	memory := make([]byte, bytes+Align-1)
	skip := -int(uintptr(unsafe.Pointer(&memory[0]))) & (Align - 1)
	return memory[skip : skip+bytes : skip+bytes], nil
}

func unmapBlock([]byte) error { return nil }
