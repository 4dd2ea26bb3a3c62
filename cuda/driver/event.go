package driver

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// event implements cuda.Event.
type event struct {
	*library
	handle    uintptr
	recorded  atomic.Bool
	destroyed atomic.Bool
}

var errNeverRecorded error = fault.New(fault.Invalid, "the event was never recorded")

func (e *event) Record(in cuda.Stream) error {
	s, ok := in.(*stream)
	switch {
	case !ok || s.library != e.library:
		return fault.New(fault.Invalid, "a stream of another driver: %T", in)
	case e.destroyed.Load() || s.destroyed.Load():
		return errDestroyed
	}
	if err := e.cuEventRecord(e.handle, s.handle); err != nil {
		return err
	}
	e.recorded.Store(true)
	return nil
}

func (e *event) Done() (bool, error) {
	if e.destroyed.Load() {
		return false, errDestroyed
	}
	return answer(e.cuEventQuery(e.handle))
}

func (e *event) Destroy() error {
	if e.destroyed.Swap(true) {
		return nil
	}
	return e.cuEventDestroy(e.handle)
}
