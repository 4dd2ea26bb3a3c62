package pgbackend

import (
	"runtime/debug"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// Task is a call that a goroutine makes, so that its caller can wait for the end in slices.
type Task struct {
	ending
	err error // set before the end
}

// NewTask starts a call.
func NewTask(call func() error) *Task {
	t := &Task{ending: newEnding()}
	go func() {
		defer t.ending.end()
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
	if t.ended() {
		return true, t.err
	}
	return false, nil
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

// ending is the end of what a goroutine does.
type ending struct {
	done  chan struct{} // closed at the end
	mu    sync.Mutex
	onEnd []func() // to be called at the end
}

func newEnding() ending { return ending{done: make(chan struct{})} }

func (e *ending) ended() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// end is called once.
func (e *ending) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.done)
	for _, f := range e.onEnd {
		f()
	}
}

// OnEnd implements Operation.
func (e *ending) OnEnd(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended() {
		return false
	}
	e.onEnd = append(e.onEnd, f)
	return true
}
