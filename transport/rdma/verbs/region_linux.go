//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

// region implements Region.
type region struct {
	context       *context
	handle        uintptr // ibv_mr
	memory        []byte  // so that it stays; nil if it is a device's
	local, remote uint32
	closed        atomic.Bool
}

// Register implements Context.
func (c *context) Register(memory []byte, remote bool) (Region, error) {
	if len(memory) == 0 {
		return nil, fault.New(fault.Invalid, "rdma: no memory to register")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	access := uint32(0)
	if remote {
		access = accessLocalWrite | accessRemoteWrite // the one is not allowed without the other
	}
	handle, errno := c.regMR(c.domain, memory, access)
	if errno != 0 {
		c.end()
		return nil, refused(errno, "%s cannot register %s", c.name, humanize.FormatSize(int64(len(memory))))
	}
	return c.newRegion(handle, memory, uint64(addressOf(&memory[0])), len(memory))
}

// newRegion makes a region, whose ibv_mr says that it is of bytes from an address on.
func (c *context) newRegion(handle uintptr, memory []byte, address uint64, bytes int) (Region, error) {
	m := at[cRegion](handle)
	r := &region{context: c, handle: handle, memory: memory, local: m.local, remote: m.remote}
	if err := fits(
		field{"ibv_mr.context", uint64(m.context), uint64(c.handle)},
		field{"ibv_mr.pd", uint64(m.domain), uint64(c.domain)},
		field{"ibv_mr.addr", uint64(m.address), address},
		field{"ibv_mr.length", m.length, uint64(bytes)},
	); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// Local implements Region.
func (r *region) Local() uint32 { return r.local }

// Remote implements Region.
func (r *region) Remote() uint32 { return r.remote }

// Close implements Region.
func (r *region) Close() error {
	if r.closed.Swap(true) {
		return errClosed("region")
	}
	if errno := r.context.deregMR(r.handle); errno != 0 {
		r.closed.Store(false)
		return refused(errno, "the end of a region of %s", r.context.name)
	}
	r.context.end()
	r.memory = nil
	return nil
}
