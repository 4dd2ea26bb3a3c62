package exports

// #include "goccl.h"
import "C"

import (
	"time"

	"github.com/goccl/goccl/pgbackend"
)

// task is what a goroutine does: a pgbackend.Sparse or a pgbackend.Task. Its caller has a handle
// like that of a ccl.Work.
type task interface {
	pgbackend.Operation
	Done() (bool, error)
	WaitSlice(d time.Duration) (bool, error)
	// Unended returns the error of a wait that the operation has outlasted.
	Unended() error
}

var tasks table[task]

// taskHandle is the bit that marks handles of tasks. Handles of other works would have it only once
// a slot has been used 2³¹ times.
const taskHandle = 1 << 63

func putTask(t task) C.goccl_work { return C.goccl_work(tasks.put(&t) | taskHandle) }

// findTask returns nil for other works, and for handles that were given back.
func findTask(work C.goccl_work) task {
	if work&taskHandle != 0 {
		if t := tasks.get(uint64(work) &^ taskHandle); t != nil {
			return *t
		}
	}
	return nil
}

// inSlices makes a call that may take long: on this thread, if slice is 0, and otherwise as a task,
// whose handle the caller gets if it has not ended within the slice.
func inSlices(slice C.int64_t, work *C.goccl_work, call func() error) error {
	if work == nil && slice > 0 {
		return null("work")
	}
	if work != nil {
		*work = 0
	}
	if slice <= 0 {
		return call()
	}
	t := pgbackend.NewTask(call)
	done, err := t.WaitSlice(time.Duration(slice))
	if !done {
		*work = putTask(t)
	}
	return err
}
