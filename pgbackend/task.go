package pgbackend

import (
	"runtime/debug"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// Task is a call that a goroutine makes, so that its caller can wait for the end in slices.
type Task struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewTask starts a call.
func NewTask(call func() error) *Task {
	t := &Task{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer func() { // a broken invariant must not take the trainer with it
			if p := recover(); p != nil {
				t.err = fault.New(fault.Internal, "%v\n%s", p, debug.Stack())
			}
		}()
		t.err = call()
	}()
	return t
}

// Done reports whether the call has ended, and its error. It never waits.
func (t *Task) Done() (bool, error) {
	select {
	case <-t.done:
		return true, t.err
	default:
		return false, nil
	}
}

// Unended returns the error of a wait that the call has outlasted.
func (t *Task) Unended() error { return fault.Unended() }

// WaitSlice waits for the end of the call, for at most d unless d is 0, and returns what Done does.
func (t *Task) WaitSlice(d time.Duration) (bool, error) {
	within(t.done, d)
	return t.Done()
}

// within waits until done is closed, for at most d unless d is 0, and reports whether it is.
func within(done <-chan struct{}, d time.Duration) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-done:
		return true
	case <-over:
		return false
	}
}
