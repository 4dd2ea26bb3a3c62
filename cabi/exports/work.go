package exports

// #include "goccl.h"
import "C"

import (
	"math"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/pgbackend"
)

var works table[ccl.Work]

// A goccl_block is a ccl.Block: unless both have the same size, one of these array lengths is
// negative.
var (
	_ [unsafe.Sizeof(C.goccl_block{}) - unsafe.Sizeof(ccl.Block{})]byte
	_ [unsafe.Sizeof(ccl.Block{}) - unsafe.Sizeof(C.goccl_block{})]byte
)

// callOf converts a goccl_call. The blocks stay in the caller's memory; a count that does not fit
// an int becomes negative, which the core refuses.
func callOf(c *C.goccl_call, call *ccl.Call) error {
	if c.n_in > ccl.MaxRanks || c.n_out > ccl.MaxRanks {
		return fault.New(fault.Invalid, "%d input and %d output blocks", uint32(c.n_in), uint32(c.n_out))
	}
	if outside(c.coll) || outside(c.dtype) || outside(c.redop) {
		return fault.New(fault.Invalid, "collective %d, type %d, operator %d",
			int32(c.coll), int32(c.dtype), int32(c.redop))
	}
	if c.in == nil && c.n_in > 0 {
		return null("call->in")
	}
	if c.out == nil && c.n_out > 0 {
		return null("call->out")
	}
	call.Coll, call.Type, call.Op = dtype.Collective(c.coll), dtype.Type(c.dtype), dtype.Op(c.redop)
	call.Root, call.Tag, call.Factor, call.Batch = int(c.root), uint32(c.tag), float64(c.factor), uint32(c.batch)
	call.In = unsafe.Slice((*ccl.Block)(unsafe.Pointer(c.in)), int(c.n_in))
	call.Out = unsafe.Slice((*ccl.Block)(unsafe.Pointer(c.out)), int(c.n_out))
	if c.timeout_ns != C.GOCCL_NO_TIMEOUT_GIVEN {
		if c.timeout_ns <= 0 {
			return fault.New(fault.Invalid, "%v: timeout %v is not more than zero",
				call.Coll, time.Duration(c.timeout_ns))
		}
		call.Timeout = time.Duration(c.timeout_ns)
	}
	return nil
}

func keyOf(c *C.goccl_call) ccl.Key { return ccl.Key{ID: uint64(c.key), Within: uint64(c.within)} }

func outside(n C.int32_t) bool { return n < 0 || n > math.MaxUint8 }

//export goccl_go_run
func goccl_go_run(group C.goccl_group, c *C.goccl_call, slice C.int64_t,
	work *C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if c == nil {
		return answer(null("call"), record)
	}
	g, err := findGroup(group)
	if err != nil {
		return answer(err, record)
	}
	if work != nil {
		*work = 0
	} else if slice > 0 {
		return answer(null("work"), record)
	}
	var call ccl.Call
	if err = callOf(c, &call); err == nil {
		var w *ccl.Work
		if d := time.Duration(max(slice, 0)); c.key != 0 {
			w, err = g.RunKeyedSlice(&call, keyOf(c), d)
		} else {
			w, err = g.RunSlice(&call, d)
		}
		if w != nil {
			*work = C.goccl_work(works.put(w))
		}
		if err == nil {
			return C.GOCCL_OK
		}
	}
	return answer(err, record)
}

// toStart checks the arguments of what starts a call, and returns the group and the call.
func toStart(group C.goccl_group, c *C.goccl_call, call *ccl.Call, work *C.goccl_work, seq *C.uint64_t) (
	*pgbackend.Group, error) {
	switch {
	case c == nil:
		return nil, null("call")
	case work == nil:
		return nil, null("work")
	case seq == nil:
		return nil, null("seq")
	}
	g, err := findGroup(group)
	if err != nil {
		return nil, err
	}
	return g, callOf(c, call)
}

//export goccl_go_start
func goccl_go_start(group C.goccl_group, c *C.goccl_call,
	work *C.goccl_work, seq *C.uint64_t, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	var call ccl.Call
	g, err := toStart(group, c, &call, work, seq)
	if err != nil {
		return answer(err, record)
	}
	var w *ccl.Work
	if c.key != 0 {
		w, err = g.StartKeyed(&call, keyOf(c))
	} else {
		w, err = g.Start(&call)
	}
	if err != nil {
		return answer(err, record)
	}
	*work, *seq = 0, C.uint64_t(w.Seq())
	if ended, failed := w.Done(); ended && failed == nil && (call.Coll != dtype.Recv || call.Root >= 0) {
		// A receive from any source still has to report its source, so it keeps its handle.
		w.Free()
	} else {
		*work = C.goccl_work(works.put(w))
	}
	return C.GOCCL_OK
}

func findWork(handle C.goccl_work) (*ccl.Work, error) {
	if w := works.get(uint64(handle)); w != nil {
		return w, nil
	}
	return nil, stale("work", uint64(handle))
}

//export goccl_go_work_wait
func goccl_go_work_wait(work C.goccl_work, timeout, slice C.int64_t,
	done *C.int, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	var t task
	w, err := findWork(work)
	if err == nil {
		t = w
	} else if t = findOther(work); t == nil {
		return answer(err, record)
	}
	last := timeout >= 0 && (slice <= 0 || timeout <= slice) // the wait ends with this slice
	if last {
		slice = max(timeout, 1)
	}
	is, err := t.WaitSlice(time.Duration(max(slice, 0)))
	if done != nil {
		*done = truth(is)
	}
	if last && !is && err == nil {
		err = t.Unended()
	}
	return answer(err, record)
}

// askWork asks a work, through ask, whether it has ended, and returns the code of its error.
func askWork(work C.goccl_work, done *C.int, record *C.goccl_error, ask func(*ccl.Work) (bool, error)) C.int {
	var is bool
	w, err := findWork(work)
	if err == nil {
		is, err = ask(w)
	} else if t := findOther(work); t != nil {
		is, err = t.Done()
	} else {
		return answer(err, record)
	}
	*done = truth(is)
	return answer(err, record)
}

//export goccl_go_work_test
func goccl_go_work_test(work C.goccl_work, done *C.int, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	return askWork(work, done, record, (*ccl.Work).Done)
}

//export goccl_go_work_poll
func goccl_go_work_poll(work C.goccl_work, done *C.int, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	return askWork(work, done, record, (*ccl.Work).Poll)
}

//export goccl_go_work_expedite
func goccl_go_work_expedite(work C.goccl_work, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	w, err := findWork(work)
	if err == nil {
		w.Expedite()
	} else if findEnqueued(work) != nil { // the device thread does not leave it alone
		err = nil
	}
	return answer(err, record)
}

//export goccl_go_work_source
func goccl_go_work_source(work C.goccl_work, source *C.int, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	if source == nil {
		return answer(null("source"), record)
	}
	w, err := findWork(work)
	if err == nil {
		*source = C.int(w.Source())
	} else if op := findEnqueued(work); op != nil {
		*source, err = C.int(op.Source()), nil
	}
	return answer(err, record)
}

//export goccl_go_work_free
func goccl_go_work_free(work C.goccl_work) C.int { return goccl_go_work_free_all(&work, 1) }

//export goccl_go_work_free_all
func goccl_go_work_free_all(list *C.goccl_work, n C.size_t) (code C.int) {
	defer caught(&code, nil)
	if list == nil && n > 0 {
		return answer(null("list"), nil)
	}
	for _, work := range unsafe.Slice(list, int(n)) {
		if w := works.take(uint64(work)); w != nil {
			w.Free()
		} else if !freeEnqueued(work) && (work&taskHandle == 0 || tasks.take(uint64(work)&^taskHandle) == nil) {
			code = C.GOCCL_INVALID
		}
	}
	return code
}
