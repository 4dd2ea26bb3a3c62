package driver

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// answers are what C writes when it is asked about an address.
type answers struct {
	kind  uint64
	start cuda.Ptr
	bytes uintptr
	id    uint64
}

var allAnswers = sync.Pool{New: func() any { return new(answers) }}

func (c *context) Range(p cuda.Ptr) (cuda.Range, error) {
	if c.released.Load() {
		return cuda.Range{}, c.errReleased()
	}
	a := allAnswers.Get().(*answers)
	defer allAnswers.Put(a)
	*a = answers{}
	if err := c.cuPointerGetAttribute(&a.kind, kindOfMemory, p); err != nil {
		return cuda.Range{}, elsewhere(err, p)
	}
	if a.kind != memoryOfDevice {
		return cuda.Range{}, elsewhere(nil, p)
	}
	if err := c.cuMemGetAddressRange(&a.start, &a.bytes, p); err != nil {
		return cuda.Range{}, elsewhere(err, p)
	}
	if err := c.cuPointerGetAttribute(&a.id, bufferID, p); err != nil {
		return cuda.Range{}, elsewhere(err, p)
	}
	if a.id == 0 {
		return cuda.Range{}, fault.New(fault.NotSupported, "the driver has no ID of the memory at %#x", uint64(p))
	}
	return cuda.Range{Ptr: a.start, Bytes: int(a.bytes), ID: a.id}, nil
}

// elsewhere returns the error of an address about which a call failed: that there is no memory of a
// device, if the driver says so.
func elsewhere(err error, p cuda.Ptr) error {
	var cause *cuda.Error
	if err == nil || errors.As(err, &cause) && (cause.Code == invalidValue || cause.Code == notFound) {
		return fault.Wrap(fault.Invalid, err, "there is no memory of a device at %#x", uint64(p))
	}
	return err
}

func (c *context) DMABuf(p cuda.Ptr, bytes int) (int, error) {
	page := os.Getpagesize()
	switch {
	case c.released.Load():
		return -1, c.errReleased()
	case bytes <= 0 || bytes%page != 0 || uint64(p)%uint64(page) != 0:
		return -1, fault.New(fault.Invalid, "a dma-buf of %d bytes at %#x: it must begin and end at a page", bytes, uint64(p))
	case !c.info.DMABuf:
		return -1, fault.New(fault.NotSupported, "device %d (%s) has no dma-bufs: they take CUDA 11.7 or later, the open "+
			"kernel modules of the NVIDIA driver, and Linux 5.12", c.info.Index, c.info.Name)
	}
	descriptor := int32(-1)
	if err := c.cuMemGetHandleForAddressRange(&descriptor, p, uintptr(bytes), rangeDMABuf, 0); err != nil {
		return -1, err
	}
	syscall.CloseOnExec(int(descriptor))
	return int(descriptor), nil
}
