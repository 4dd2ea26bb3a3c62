package exports

// #include "goccl.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

var enqueued table[ccl.DeviceWork]

// enqueuedHandle is the bit that marks handles of enqueued operations. A table has fewer places
// than that, so no other handle has it.
const enqueuedHandle = 1 << 31

// findEnqueued returns nil for other works, and for handles that were given back.
func findEnqueued(work C.goccl_work) *ccl.DeviceWork {
	if work&enqueuedHandle == 0 {
		return nil
	}
	return enqueued.get(uint64(work) &^ enqueuedHandle)
}

// freeEnqueued gives back the handle of an enqueued operation. It returns false for other works,
// and for handles that were given back.
func freeEnqueued(work C.goccl_work) bool {
	if work&enqueuedHandle == 0 {
		return false
	}
	op := enqueued.take(uint64(work) &^ enqueuedHandle)
	if op != nil {
		op.Free()
	}
	return op != nil
}

// waited is an enqueued operation as a task.
type waited struct{ *ccl.DeviceWork }

func (w waited) WaitSlice(d time.Duration) (bool, error) { return w.Wait(d) }

// findOther finds a work that is not a ccl.Work; nil for those, and for handles that were given
// back.
func findOther(work C.goccl_work) task {
	if op := findEnqueued(work); op != nil {
		return waited{op}
	}
	return findTask(work)
}

//export goccl_go_enqueue
func goccl_go_enqueue(group C.goccl_group, c *C.goccl_call, stream unsafe.Pointer,
	work *C.goccl_work, seq *C.uint64_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	var call ccl.Call
	g, err := toStart(group, c, &call, work, seq)
	if err != nil {
		return answer(err, record)
	}
	op, err := g.Enqueue(&call, uintptr(stream))
	if err != nil {
		return answer(err, record)
	}
	*work, *seq = C.goccl_work(enqueued.put(op)|enqueuedHandle), C.uint64_t(op.Seq())
	return C.GOCCL_OK
}

//export goccl_go_work_join
func goccl_go_work_join(work C.goccl_work, stream unsafe.Pointer, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if op := findEnqueued(work); op != nil {
		return answer(op.Join(op.Group().Stream(uintptr(stream))), record)
	}
	if _, err := findWork(work); err != nil && findTask(work) == nil {
		return answer(err, record)
	}
	return answer(fault.New(fault.NotSupported, "a stream can only join works of goccl_enqueue"), record)
}
