package ccl

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

// Alloc allocates registered memory. Collectives of groups whose ranks are all on this host, and
// have registered memory too, read it in place instead of copying it into a window first. It may be
// used for anything else as well. It begins at a page and has the requested number of bytes; its
// contents are undefined. The caller must give it back by Free, but not while an operation uses it.
// The memory remains after the Node is closed.
//
// Each rank decides for itself which of its buffers are registered, call by call; the results have
// the same bits either way. Buffers are used at any offset if they have at least 32 KiB, or 640 KiB
// for an all-reduce: below that a copy is cheaper.
func (n *Node) Alloc(bytes int) ([]byte, error) {
	arena, err := n.arena()
	if err != nil {
		return nil, err
	}
	return arena.Alloc(bytes)
}

// Free gives back memory from Alloc. memory must begin where Alloc's result began.
func (n *Node) Free(memory []byte) error {
	return n.FreePointer(unsafe.Pointer(unsafe.SliceData(memory)))
}

// FreePointer is Free for callers that keep no slice.
func (n *Node) FreePointer(memory unsafe.Pointer) error {
	arena, err := n.arena()
	if err != nil {
		return err
	}
	return arena.Free(memory)
}

// registered returns the registered memory of the process, or nil if there is none.
func (n *Node) registered() *mem.Arena {
	arena, _ := n.arena()
	return arena
}

// arenaFor returns the arena that a group with this window lends, or nil.
func (n *Node) arenaFor(window *mem.Window) *mem.Arena {
	if window == nil {
		return nil
	}
	return n.registered()
}

// pinner returns the fabric of a group that sends registered memory in place, or nil.
func pinner(fabrics []transport.Fabric) mem.Pinner {
	for _, f := range fabrics {
		if r, ok := f.(transport.Registrar); ok {
			return r
		}
	}
	return nil
}

// newArena makes the registered memory that the options ask for.
func (o *NodeOptions) newArena() (*mem.Arena, error) {
	if o.Registered < 0 {
		return nil, fault.New(fault.NotSupported, "there is no registered memory in this process: GOCCL_REGISTERED=0")
	}
	bytes := o.Registered &^ (registeredUnit - 1)
	// Each rank of the host maps it, and the Go runtime ends the process where it is refused
	// addresses.
	if left, limited := mem.AddressesLeft(); limited && bytes > left/addressShare {
		return nil, fault.New(fault.NotSupported, "there is no registered memory in this process: GOCCL_REGISTERED=%s is "+
			"more than 1/%d of the %d MiB that the limit of its address space (ulimit -v, RLIMIT_AS) leaves; "+
			"set a smaller one, or raise the limit", humanize.FormatSize(int64(o.Registered)), addressShare, left>>20)
	}
	return mem.NewArena(bytes)
}

// addressShare limits registered memory to a part of the address space, where that is limited.
const addressShare = 8
