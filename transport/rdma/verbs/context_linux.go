//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// context implements Context.
type context struct {
	*library
	name            string
	handle          uintptr // ibv_context
	domain          uintptr // ibv_pd
	do              operations
	command, events int // descriptors

	mu     sync.Mutex
	made   int // objects that are not closed
	closed bool
}

// openContext opens an adapter and checks that the library fits.
func (l *library) openContext(device uintptr, name string) (*context, error) {
	handle, errno := l.openDevice(device)
	if errno != 0 {
		return nil, unopened(errno, name)
	}
	c := &context{library: l, name: name, handle: handle}
	if err := c.prepare(device); err != nil {
		_ = c.release()
		return nil, err
	}
	return c, nil
}

func (c *context) prepare(device uintptr) error {
	code, err := codeOfProcess()
	if err != nil {
		return err
	}
	memory := at[cContext](c.handle)
	var size uintptr
	if memory.marker == extended {
		size = *at[uintptr](c.handle - 8)
	}
	if c.do, err = findOperations(memory, size, device, code, c.files); err != nil {
		return err
	}
	c.command, c.events = int(memory.command), int(memory.async)
	if err := unix.SetNonblock(c.events, true); err != nil {
		return fault.Wrap(fault.System, err, "rdma: the descriptor of events of %s", c.name)
	}
	domain, errno := c.allocPD(c.handle)
	if errno != 0 {
		return refused(errno, "a protection domain of %s", c.name)
	}
	c.domain = domain
	return fits(field{"ibv_pd.context", uint64(at[cDomain](domain).context), uint64(c.handle)})
}

// release gives back what openContext has got.
func (c *context) release() error {
	if c.domain != 0 {
		if errno := c.deallocPD(c.domain); errno != 0 {
			return refused(errno, "the end of a protection domain of %s", c.name)
		}
		c.domain = 0
	}
	if errno := c.closeDevice(c.handle); errno != 0 {
		return refused(errno, "the end of adapter %s", c.name)
	}
	return nil
}

// begin counts an object that is about to be made.
func (c *context) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed("adapter " + c.name)
	}
	c.made++
	return nil
}

// end counts an object that was closed, or could not be made.
func (c *context) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made--
}

// Device implements Context.
func (c *context) Device() (Device, error) {
	if err := c.begin(); err != nil {
		return Device{}, err
	}
	defer c.end()
	return c.describe(c.handle, c.name)
}

// Close implements Context.
func (c *context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed("adapter " + c.name)
	case c.made > 0:
		return fault.New(fault.Invalid, "rdma: adapter %s cannot be closed: %d of its objects are not", c.name, c.made)
	}
	if err := c.release(); err != nil {
		return err
	}
	c.closed = true
	return nil
}

// Descriptors implements Holder.
func (c *context) Descriptors() []int { return []int{c.command, c.events} }
