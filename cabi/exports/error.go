package exports

// #include "goccl.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
)

// answer returns the code of an error and fills the caller's record.
func answer(err error, record *C.goccl_error) C.int {
	if err == nil {
		return C.GOCCL_OK
	}
	f := &fault.Error{}
	if !errors.As(err, &f) {
		f = fault.Wrap(fault.Internal, err, "")
	}
	if record != nil {
		record.code = C.int32_t(f.Code)
		record.peer = C.int32_t(f.Peer)
		text := unsafe.Slice((*byte)(unsafe.Pointer(&record.text)), len(record.text))
		text[copy(text[:len(text)-1], f.Error())] = 0
	}
	return C.int(f.Code)
}

// caught turns a panic into an error: a broken invariant must not take the trainer with it.
func caught(code *C.int, record *C.goccl_error) {
	if p := recover(); p != nil {
		*code = answer(fault.New(fault.Internal, "%v\n%s", p, debug.Stack()), record)
	}
}

// null is the error for a pointer that the function needs.
func null(what string) error { return fault.New(fault.Invalid, "%s is NULL", what) }

func stale(what string, handle uint64) error {
	return fault.New(fault.Invalid,
		"%s: not a handle, or one that was given back (%s)", what, fmt.Sprintf("%#x", handle))
}
