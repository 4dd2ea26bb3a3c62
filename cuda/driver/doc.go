// Package driver is NVIDIA's driver as package cuda describes one. It opens libcuda.so.1 at run
// time, so whatever links it builds without CUDA and runs where there is none.
//
// # Entry points
//
// The list of all calls is in tablegen/table.go, with the version of CUDA in which each got the
// form that is used here. From it, tablegen writes zcalls_unsafe.go: a method of library for every
// call. Entry points come from cuGetProcAddress, which is asked for exactly that version. The
// names that the library exports do not do: cuStreamBatchMemOp, for example, is the first form,
// which drivers have switched off, and the one that works is exported as cuStreamBatchMemOp_v2.
// Conversely, a driver that is older than the version answers with an older form. So it is not
// asked.
//
// # Allocations
//
// Calls that groups make for every operation allocate nothing: C writes its results into fields of
// objects that exist anyway, and blocks of arguments come from pools.
package driver

//go:generate go run ./tablegen
