package verbstest

import "unsafe"

// addressOf returns where memory lies.
func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}

// memoryAt returns what lies at an address: of an inline write only the program knows that it is
// there.
func memoryAt(address uint64, bytes uint32) []byte {
	at := uintptr(address)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes)
}
