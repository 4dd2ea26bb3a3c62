package exports

// #include "goccl.h"
import "C"

import (
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/flight/trace"
	"github.com/goccl/goccl/pgbackend"
)

//export goccl_go_group_describe
func goccl_go_group_describe(group C.goccl_group, description *C.char,
	ranks *C.uint64_t, n C.size_t, record *C.goccl_error) C.int {
	if ranks == nil && n > 0 {
		return answer(null("ranks"), record)
	}
	return onGroup(group, record, func(g *pgbackend.Group) error {
		if n > ccl.MaxRanks {
			return fault.New(fault.Invalid, "%d global ranks", uint64(n))
		}
		g.Describe(C.GoString(description), unsafe.Slice((*uint64)(unsafe.Pointer(ranks)), int(n)))
		return nil
	})
}

//export goccl_go_group_batch
func goccl_go_group_batch(group C.goccl_group, batch C.uint32_t, record *C.goccl_error) C.int {
	return onGroup(group, record, func(g *pgbackend.Group) error { return g.EndBatch(uint32(batch)) })
}

//export goccl_go_trace
func goccl_go_trace(path *C.char, buf unsafe.Pointer, size C.size_t,
	length *C.size_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	switch {
	case length == nil:
		return answer(null("length"), record)
	case buf == nil && size > 0:
		return answer(null("buf"), record)
	}
	operations := ccl.Trace()
	*length = C.size_t(len(operations))
	if path != nil {
		return answer(trace.Write(C.GoString(path), operations), record)
	}
	if len(operations) <= int(size) {
		copy(unsafe.Slice((*byte)(buf), len(operations)), operations)
	}
	return C.GOCCL_OK
}
