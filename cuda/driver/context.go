package driver

import (
	"runtime"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// context implements cuda.Context.
type context struct {
	*library
	modes    *modes
	device   int32
	handle   uintptr
	info     cuda.Info
	released atomic.Bool
	popped   uintptr // any thread's Leave writes here, and nobody reads it

	forAdapters bool // memory can be allocated so that adapters may be given access to it
}

func (c *context) Info() cuda.Info { return c.info }

func (c *context) Enter(relaxed bool) error {
	if c.released.Load() {
		return c.errReleased()
	}
	runtime.LockOSThread()
	err := c.cuCtxPushCurrent(c.handle)
	if err == nil {
		if err = c.modes.enter(c.library, relaxed); err == nil {
			return nil
		}
		_ = c.cuCtxPopCurrent(&c.popped)
	}
	runtime.UnlockOSThread()
	return err
}

func (c *context) Leave() {
	c.modes.leave(c.library)
	_ = c.cuCtxPopCurrent(&c.popped) // fails only where Enter has failed, or everything has
	runtime.UnlockOSThread()
}

func (c *context) NewStream(urgency int) (cuda.Stream, error) {
	if c.released.Load() {
		return nil, c.errReleased()
	}
	var least, greatest int32 // greater priorities are smaller numbers
	if err := c.cuCtxGetStreamPriorityRange(&least, &greatest); err != nil {
		return nil, err
	}
	priority := least - int32(min(max(urgency, 0), int(least-greatest)))
	s := &stream{library: c.library}
	if err := c.cuStreamCreateWithPriority(&s.handle, streamNonBlocking, priority); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *context) Adopt(native uintptr) cuda.Stream {
	return &stream{library: c.library, handle: native, adopted: true}
}

func (c *context) NewEvent() (cuda.Event, error) {
	if c.released.Load() {
		return nil, c.errReleased()
	}
	e := &event{library: c.library}
	if err := c.cuEventCreate(&e.handle, eventWithoutTime); err != nil {
		return nil, err
	}
	return e, nil
}

func (c *context) Reaches(index int) (bool, error) {
	if c.released.Load() {
		return false, c.errReleased()
	}
	var device, can int32
	if err := c.cuDeviceGet(&device, int32(index)); err != nil {
		return false, err
	}
	if device == c.device { // about which CUDA says no
		return true, nil
	}
	err := c.cuDeviceCanAccessPeer(&can, c.device, device)
	return can != 0, err
}

func (c *context) Release() error {
	if c.released.Swap(true) {
		return c.errReleased()
	}
	return c.cuDevicePrimaryCtxRelease(c.device)
}

func (c *context) errReleased() error {
	return fault.New(fault.Closed, "the context of device %d was released before", c.info.Index)
}
