package rdma

import "unsafe"

// address returns where memory that is not Go's begins.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
