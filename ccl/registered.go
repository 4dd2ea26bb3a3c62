package ccl

import (
	"fmt"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/humanize"
	"github.com/goccl/goccl/ccl/mem"
)

// Alloc gives out registered memory: collectives of groups whose ranks are all on this host, and
// have such memory too, read it where it lies instead of copying it into a window first. It may be
// used for anything else as well. It begins at a page, has as many bytes as were asked for, and
// what is in it is not defined. It must be given back by Free, and not while an operation uses it;
// after the Node is closed it is still there.
//
// Each rank decides for itself which of its buffers are registered, call by call; the results are
// the same bits either way. Buffers are taken at any offset, where they have 32 KiB or more, or 640
// KiB for an all-reduce: below, a copy takes less.
func (n *Node) Alloc(bytes int) ([]byte, error) {
	arena, err := n.arena()
	if err != nil {
		return nil, err
	}
	return arena.Alloc(bytes)
}

// Free gives back what Alloc gave out; memory begins where that began.
func (n *Node) Free(memory []byte) error {
	return n.FreePointer(unsafe.Pointer(unsafe.SliceData(memory)))
}

// FreePointer is Free for who keeps no slice.
func (n *Node) FreePointer(memory unsafe.Pointer) error {
	arena, err := n.arena()
	if err != nil {
		return err
	}
	return arena.Free(memory)
}

// registered is the registered memory of the process, nil where there is none.
func (n *Node) registered() *mem.Arena {
	arena, _ := n.arena()
	return arena
}

// arenaFor is what a group with such windows lends.
func (n *Node) arenaFor(window *mem.Window) *mem.Arena {
	if window == nil {
		return nil
	}
	return n.registered()
}

// newArena makes the registered memory that the options ask for.
func (o *Options) newArena() (*mem.Arena, error) {
	bytes, err := o.registered()
	if err != nil {
		return nil, fault.New(fault.Invalid, "GOCCL_REGISTERED: %v", err)
	}
	if bytes == 0 {
		return nil, fault.New(fault.NotSupported, "there is no registered memory in this process: GOCCL_REGISTERED=0")
	}
	return mem.NewArena(bytes)
}

// The room is a multiple of registeredUnit, so that huge pages fit.
const (
	registeredUnit = 2 << 20
	mostRegistered = 1 << 40
)

// registered is Registered in bytes.
func (o *Options) registered() (int, error) {
	if o.Registered == "" || o.Registered == "0" {
		return 0, nil
	}
	n, err := humanize.ParseSize(o.Registered)
	if err != nil {
		return 0, err
	}
	if n < registeredUnit || n > mostRegistered {
		return 0, fmt.Errorf("%q is not 0 and not a size from 2M to 1T", o.Registered)
	}
	return int(n) &^ (registeredUnit - 1), nil
}

func (o *Options) checkRegistered() error {
	_, err := o.registered()
	return err
}
