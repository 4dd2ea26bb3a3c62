package cudatest

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// dmaBuf is memory of a device with a descriptor for adapters. The descriptor is an end of a pipe,
// whose other end stays here: it tells when all copies of the descriptor are closed.
type dmaBuf struct {
	of    *allocation
	ptr   cuda.Ptr
	bytes int
	pipe  int
	made  site
}

// Range finds an allocation. Its ID is its number among all of the machine.
func (c *context) Range(p cuda.Ptr) (cuda.Range, error) {
	const call = "cuMemGetAddressRange"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, false); err != nil {
		return cuda.Range{}, err
	}
	a, why := d.find(p, 1)
	if why == "" && a.space == d.host {
		why = fmt.Sprintf("%#x is memory of the host", uint64(p))
	}
	if why != "" {
		return cuda.Range{}, fault.New(fault.Invalid, "%s: %s", call, why)
	}
	return cuda.Range{Ptr: a.ptr, Bytes: len(a.memory), ID: uint64(a.index)}, nil
}

// DMABuf makes a descriptor of memory of a device, whoever has allocated it.
func (c *context) DMABuf(p cuda.Ptr, bytes int) (int, error) {
	const call = "cuMemGetHandleForAddressRange"
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.begin(call, false); err != nil {
		return -1, err
	}
	if bytes <= 0 || p%cuda.Ptr(pageBytes) != 0 || bytes%pageBytes != 0 {
		return -1, invalid(call)
	}
	if d.o.Faults.NoDMABuf {
		return -1, failure(call, notSupported)
	}
	a := d.pagesOf(p, bytes)
	if a == nil {
		return -1, invalid(call)
	}
	b := &dmaBuf{of: a, ptr: p, bytes: bytes, made: here()}
	descriptor, err := b.makePipe()
	if err != nil {
		return -1, failure(call, outOfMemory)
	}
	d.dmaBufs[fileOf(descriptor)] = b
	return descriptor, nil
}

var pageBytes = os.Getpagesize()

// pagesOf returns the allocation of a device that has whole pages, but for the rest of its first
// and last one; nil if there is none.
func (d *Driver) pagesOf(p cuda.Ptr, bytes int) *allocation {
	page := cuda.Ptr(pageBytes)
	for _, a := range d.allocations {
		end := (a.ptr + cuda.Ptr(len(a.memory)) + page - 1) &^ (page - 1)
		if a.space != d.host && a.ptr&^(page-1) <= p && p+cuda.Ptr(bytes) <= end {
			return a
		}
	}
	return nil
}

func (b *dmaBuf) makePipe() (descriptor int, err error) {
	var ends [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(ends[:]); err != nil {
		return -1, err
	}
	for _, end := range ends {
		syscall.CloseOnExec(end)
	}
	b.pipe = ends[1]
	return ends[0], syscall.SetNonblock(b.pipe, true)
}

// open reports whether a copy of the descriptor is open.
func (b *dmaBuf) open() bool {
	_, err := syscall.Write(b.pipe, []byte{0})
	return err != syscall.EPIPE
}

// dropDMABuf forgets one whose descriptors are closed.
func (d *Driver) dropDMABuf(of file) {
	syscall.Close(d.dmaBufs[of].pipe)
	delete(d.dmaBufs, of)
}

// MemoryOfDMABuf finds what a descriptor stands for, as an adapter does. there reports whether the
// memory is still that which it was made of.
func (d *Driver) MemoryOfDMABuf(descriptor int) (memory []byte, there func() bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.dmaBufs[fileOf(descriptor)]
	if b == nil {
		return nil, nil, fault.New(fault.Invalid, "descriptor %d is not that of a dma-buf", descriptor)
	}
	return memoryAt(b.ptr, b.bytes), d.there(b.of), nil
}

// MemoryAt finds memory of devices by its address, as an adapter does with the help of the kernel.
func (d *Driver) MemoryAt(address uint64, bytes int) (memory []byte, there func() bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, why := d.find(cuda.Ptr(address), bytes)
	if why == "" && a.space == d.host {
		why = "it is memory of the host"
	}
	if why != "" {
		return nil, nil, fault.New(fault.Invalid, "%s", why)
	}
	return a.part(cuda.Ptr(address), bytes), d.there(a), nil
}

func (d *Driver) there(a *allocation) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !a.freed
	}
}

// memoryAt returns pages of which a part is known to be there. All of them are, then.
func memoryAt(p cuda.Ptr, bytes int) []byte {
	at := uintptr(p)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes)
}
