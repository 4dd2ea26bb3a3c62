//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

var _ DeviceRegistrar = (*context)(nil)

// RegisterDMABuf implements DeviceRegistrar.
func (c *context) RegisterDMABuf(descriptor int, offset uint64, bytes int, at uint64) (Region, error) {
	if c.at[regDMABufMR] == 0 {
		return nil, fault.New(fault.NotSupported, "rdma: libibverbs has no %s: it takes rdma-core 34 or later",
			entries[regDMABufMR])
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	handle, errno := c.regDMABufMR(c.domain, offset, bytes, at, descriptor)
	if errno != 0 {
		c.end()
		return nil, c.unregistered(errno, "a dma-buf", bytes)
	}
	return c.newRegion(handle, nil, offset, bytes) // ibv_reg_dmabuf_mr notes the offset as the address
}

// peerModules have the kernel find memory of NVIDIA's devices: the present one, and the one before.
var peerModules = []string{"nvidia_peermem", "nv_peer_mem"}

// RegisterAddress implements DeviceRegistrar.
func (c *context) RegisterAddress(at uint64, bytes int) (Region, error) {
	found := false
	for _, module := range peerModules {
		_, err := os.Stat(filepath.Join(c.modules, module))
		found = found || err == nil
	}
	if !found {
		return nil, fault.New(fault.NotSupported, "rdma: the kernel module %s is not loaded (modprobe %s)", peerModules[0],
			peerModules[0])
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	handle, errno := c.regMRAt(c.domain, at, bytes)
	if errno != 0 {
		c.end()
		return nil, c.unregistered(errno, "memory of a device", bytes)
	}
	return c.newRegion(handle, nil, at, bytes)
}

// unregistered is the error of memory of a device that was refused.
func (c *context) unregistered(errno syscall.Errno, what string, bytes int) error {
	if errno == syscall.EOPNOTSUPP || errno == syscall.ENOSYS {
		return fault.Wrap(fault.NotSupported, errno, "rdma: %s, or its driver, cannot register %s", c.name, what)
	}
	return refused(errno, "%s cannot register %s of %s", c.name, humanize.FormatSize(int64(bytes)), what)
}
