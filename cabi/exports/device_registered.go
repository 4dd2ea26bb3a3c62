package exports

// #include "goccl.h"
import "C"

import (
	"unsafe"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/pgbackend"
)

//export goccl_go_device_arena
func goccl_go_device_arena(options, device *C.char, bytes *C.uint64_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if bytes == nil {
		return answer(null("bytes"), record)
	}
	n, err := pgbackend.OpenArena(C.GoString(options), C.GoString(device))
	if err == nil {
		*bytes = C.uint64_t(n)
	}
	return answer(err, record)
}

//export goccl_go_device_alloc
func goccl_go_device_alloc(bytes C.intptr_t, device C.int, memory *C.uintptr_t) (code C.int) {
	defer caught(&code, nil)
	if memory == nil {
		return answer(null("memory"), nil)
	}
	p, err := pgbackend.AllocOn(int(device), int(bytes))
	if err != nil { // torch says no more than that there is no memory
		pgbackend.Warn("%v", err)
		return answer(err, nil)
	}
	*memory = C.uintptr_t(p)
	return C.GOCCL_OK
}

//export goccl_go_device_free
func goccl_go_device_free(memory C.uintptr_t, device C.int, stream unsafe.Pointer) (code C.int) {
	defer caught(&code, nil)
	err := pgbackend.FreeOn(int(device), cuda.Ptr(memory), uintptr(stream))
	if err != nil {
		pgbackend.Warn("registered memory of a device was not given back: %v", err)
	}
	return answer(err, nil)
}
