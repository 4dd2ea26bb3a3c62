package verbstest

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

var _ verbs.DeviceRegistrar = (*context)(nil)

func (c *context) RegisterDMABuf(descriptor int, offset uint64, bytes int, at uint64) (verbs.Region, error) {
	const call = "RegisterDMABuf"
	defer c.end()
	if err := c.begin(call); err != nil {
		return nil, err
	}
	find, page := c.a.h.n.o.DMABuf, uint64(os.Getpagesize())
	if find == nil {
		return nil, fault.Wrap(fault.NotSupported, unix.EOPNOTSUPP, "%s: this adapter knows no dma-bufs", call)
	}
	memory, there, err := find(descriptor)
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.System, unix.EBADF, "%s: %v", call, err)
	case bytes <= 0 || offset > uint64(len(memory)) || uint64(bytes) > uint64(len(memory))-offset:
		return nil, fault.Wrap(fault.System, unix.EINVAL, "%s: bytes %d..%d of a dma-buf of %d", call, offset,
			offset+uint64(bytes), len(memory))
	case at%page != offset%page:
		return nil, fault.Wrap(fault.System, unix.EINVAL, "%s: offset %d for address %#x", call, offset, at)
	}
	return c.add(call, &region{c: c, memory: memory[offset:][:bytes], at: at, there: there})
}

func (c *context) RegisterAddress(at uint64, bytes int) (verbs.Region, error) {
	const call = "RegisterAddress"
	defer c.end()
	if err := c.begin(call); err != nil {
		return nil, err
	}
	find := c.a.h.n.o.PeerMemory
	if find == nil {
		return nil, fault.New(fault.NotSupported, "%s: the kernel has no module for memory of devices", call)
	}
	memory, there, err := find(at, bytes)
	if err != nil {
		return nil, fault.Wrap(fault.System, unix.EFAULT, "%s: %v", call, err)
	}
	return c.add(call, &region{c: c, memory: memory, at: at, there: there})
}
