package exports

// #include "goccl.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/pgbackend"
)

//export goccl_go_alloc
func goccl_go_alloc(options *C.char, bytes C.size_t, memory *unsafe.Pointer, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if memory == nil {
		return answer(null("memory"), record)
	}
	if uint64(bytes) > math.MaxInt64 {
		return answer(fault.New(fault.Invalid, "%d bytes of registered memory", uint64(bytes)), record)
	}
	p, err := pgbackend.Alloc(C.GoString(options), int(bytes))
	if err == nil {
		*memory = p
	}
	return answer(err, record)
}

//export goccl_go_free
func goccl_go_free(memory unsafe.Pointer, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	return answer(pgbackend.Free(memory), record)
}

//export goccl_go_memory_stats
func goccl_go_memory_stats(bytes, peak, blocks *C.uint64_t) (code C.int) {
	defer caught(&code, nil)
	switch {
	case bytes == nil:
		return answer(null("bytes"), nil)
	case peak == nil:
		return answer(null("peak"), nil)
	case blocks == nil:
		return answer(null("blocks"), nil)
	}
	inUse, most, count := pgbackend.Lent()
	*bytes, *peak, *blocks = C.uint64_t(inUse), C.uint64_t(most), C.uint64_t(count)
	return C.GOCCL_OK
}
