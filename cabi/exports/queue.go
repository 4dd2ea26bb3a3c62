package exports

// #include "goccl.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/pgbackend"
)

// queue is the Queue of this process.
var queue = pgbackend.NewQueue()

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

//export goccl_go_queue_watch
func goccl_go_queue_watch(list *C.goccl_work, n C.size_t, urgent C.int,
	token C.uint64_t, watched, thread *C.int, record *C.goccl_error) (code C.int) {
	defer caught(&code, record)
	*watched, *thread = 0, 0
	var ops []pgbackend.Operation
	for _, work := range unsafe.Slice(list, int(n)) {
		if t := findTask(work); t != nil {
			ops = append(ops, t)
			continue
		}
		if op := findEnqueued(work); op != nil {
			ops = append(ops, op.Watch())
			continue
		}
		w, err := findWork(work)
		if err != nil {
			return answer(err, record)
		}
		ops = append(ops, w)
	}
	is, more := queue.Watch(uint64(token), ops)
	for _, op := range ops {
		if w, ok := op.(*ccl.Work); ok && is && urgent != 0 {
			w.Expedite() // the caller keeps the work until this returns
		}
	}
	*watched, *thread = truth(is), truth(more)
	return C.GOCCL_OK
}

//export goccl_go_queue_next
func goccl_go_queue_next(token *C.uint64_t, thread *C.int) (code C.int) {
	defer caught(&code, nil)
	next, more := queue.Next(uint64(*token))
	*token, *thread = C.uint64_t(next), truth(more)
	return C.GOCCL_OK
}

//export goccl_go_queue_settle
func goccl_go_queue_settle(own C.uint64_t, hooks C.int, timeout C.int64_t, settled *C.int) (code C.int) {
	defer caught(&code, nil)
	*settled = truth(queue.Settle(uint64(own), hooks != 0, time.Duration(timeout)))
	return C.GOCCL_OK
}

//export goccl_go_queue_stop
func goccl_go_queue_stop(timeout C.int64_t) (code C.int) {
	defer caught(&code, nil)
	queue.Stop(time.Duration(timeout))
	return C.GOCCL_OK
}
