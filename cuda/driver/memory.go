package driver

import (
	"cmp"
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// memory implements cuda.Memory: an allocation of its own, mapped into a range of addresses of its
// own.
type memory struct {
	*library
	of     cuda.Info
	handle uint64
	ptr    cuda.Ptr
	bytes  uintptr
	freed  atomic.Bool
}

func (c *context) Alloc(bytes int) (cuda.Memory, error) {
	p := c.properties()
	size, err := c.rounded(bytes, &p)
	if err != nil {
		return nil, err
	}
	var handle uint64
	if err := c.cuMemCreate(&handle, size, &p, 0); err != nil {
		return nil, err
	}
	return c.mapped(handle, size)
}

func (c *context) Import(descriptor, bytes int) (cuda.Memory, error) {
	if descriptor < 0 {
		return nil, fault.New(fault.Invalid, "memory cannot be imported from descriptor %d", descriptor)
	}
	p := c.properties()
	size, err := c.rounded(bytes, &p)
	if err != nil {
		return nil, err
	}
	var handle uint64
	if err := c.cuMemImportFromShareableHandle(&handle, uintptr(descriptor), handleDescriptor); err != nil {
		return nil, err
	}
	if err := c.reachesOwner(handle); err != nil {
		_ = c.cuMemRelease(handle)
		return nil, err
	}
	m, err := c.mapped(handle, size)
	var cause *cuda.Error
	if errors.As(err, &cause) && cause.Call == entries[entryMemSetAccess].name && cause.Code == invalidDevice {
		return nil, fault.Wrap(fault.NotSupported, err, "device %d (%s) gets no access to the memory of another device",
			c.info.Index, c.info.Name)
	}
	return m, err
}

// reachesOwner returns an error if memory is of a device that this one does not reach: to use it
// would cost the context. Of a device that is hidden from this process nothing is known here, so
// the driver decides when the memory is mapped.
func (c *context) reachesOwner(handle uint64) error {
	var p allocation
	var can int32
	if !c.has(entryMemGetAllocationPropertiesFromHandle) ||
		c.cuMemGetAllocationPropertiesFromHandle(&p, handle) != nil ||
		p.location.kind != locationDevice || p.location.index == c.device ||
		c.cuDeviceCanAccessPeer(&can, c.device, p.location.index) != nil || can != 0 {
		return nil
	}
	return fault.New(fault.NotSupported, "device %d (%s) does not reach the memory of another device (handle %d)",
		c.info.Index, c.info.Name, p.location.index)
}

// properties returns those of memory of the device.
func (c *context) properties() allocation {
	p := allocation{kind: allocationPinned, handles: handleNone, location: location{locationDevice, c.device}}
	if c.info.Shares {
		p.handles = handleDescriptor
	}
	if c.forAdapters {
		p.rdma = 1
	}
	return p
}

// rounded returns the next size that the device can allocate.
func (c *context) rounded(bytes int, p *allocation) (uintptr, error) {
	switch {
	case c.released.Load():
		return 0, c.errReleased()
	case bytes <= 0:
		return 0, fault.New(fault.Invalid, "%d bytes of memory", bytes)
	}
	var unit uintptr
	if err := c.cuMemGetAllocationGranularity(&unit, p, granularityMinimum); err != nil {
		return 0, err
	}
	return (uintptr(bytes) + unit - 1) / unit * unit, nil
}

// mapped gives an allocation an address, and releases it if that fails.
func (c *context) mapped(handle uint64, bytes uintptr) (_ cuda.Memory, err error) {
	m := &memory{library: c.library, of: c.info, handle: handle, bytes: bytes}
	var undo []func() error
	defer func() {
		for index := len(undo) - 1; err != nil && index >= 0; index-- {
			_ = undo[index]()
		}
	}()
	undo = append(undo, func() error { return c.cuMemRelease(handle) })
	if err := c.cuMemAddressReserve(&m.ptr, bytes, 0, 0, 0); err != nil {
		return nil, err
	}
	undo = append(undo, func() error { return c.cuMemAddressFree(m.ptr, bytes) })
	if err := c.cuMemMap(m.ptr, bytes, 0, handle, 0); err != nil {
		return nil, err
	}
	undo = append(undo, func() error { return c.cuMemUnmap(m.ptr, bytes) })
	a := access{location{locationDevice, c.device}, accessReadWrite} // only this device, whosever the memory is
	if err := c.cuMemSetAccess(m.ptr, bytes, &a, 1); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *memory) Ptr() cuda.Ptr { return m.ptr }

func (m *memory) Bytes() int { return int(m.bytes) }

func (m *memory) Descriptor() (int, error) {
	switch {
	case m.freed.Load():
		return -1, errFreed
	case !m.of.Shares:
		return -1, fault.New(fault.NotSupported, "device %d (%s) cannot share memory by descriptors",
			m.of.Index, m.of.Name)
	}
	descriptor := int32(-1)
	if err := m.cuMemExportToShareableHandle(&descriptor, m.handle, handleDescriptor, 0); err != nil {
		return -1, err
	}
	syscall.CloseOnExec(int(descriptor))
	return int(descriptor), nil
}

// Free takes all steps even if one fails, and returns the first error.
func (m *memory) Free() error {
	if m.freed.Swap(true) {
		return errFreed
	}
	return cmp.Or(m.cuMemUnmap(m.ptr, m.bytes), m.cuMemRelease(m.handle), m.cuMemAddressFree(m.ptr, m.bytes))
}

var errFreed error = fault.New(fault.Closed, "the memory was freed before")
