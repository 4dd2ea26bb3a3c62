package gpudirect_test

import "unsafe"

// addressOf returns where memory lies.
func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}
