package shm

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/ring"
)

// DefaultPoolBytes is the default size of a process's memory for large fragments.
const DefaultPoolBytes = 16 << 20

// Options configures the fabric.
type Options struct {
	// PoolBytes is the size of this process's memory for large fragments, which is allocated at the
	// first connection; 0 is DefaultPoolBytes.
	PoolBytes int
	// Doorbell is the page with the doorbell of this process (NewDoorbell), if other fabrics ring
	// it too; nil for a page of the fabric's own.
	Doorbell *mem.Segment
	// Arena is called at the first connection. It returns the registered memory of this process,
	// which all peers map; nil for none.
	Arena func() *mem.Arena
	// Track, if set, is called with true for every socket that is a connection or listens, and with
	// false before it is closed: a forked child must close these sockets. Otherwise, where the
	// kernel does not tell of the end of a process, peers would not notice the death of this one.
	// Track must be quick and may be called by any thread.
	Track func(fd int, open bool)

	// Deny, if set, is asked before this process connects to the one with an address. An error
	// counts as that of the system: tests make a sandbox of it.
	Deny func(peer []byte) error

	blind  bool  // tests: as if the kernel told nothing of processes
	forbid error // tests: what the kernel says when memory of a peer is mapped
}

// EnsureDefaults fills in zero fields and rounds the pool up to whole slots.
func (o *Options) EnsureDefaults() {
	if o.PoolBytes == 0 {
		o.PoolBytes = DefaultPoolBytes
	}
	if rest := o.PoolBytes % ring.LeaseBytes; rest > 0 {
		o.PoolBytes += ring.LeaseBytes - rest
	}
	if o.Track == nil {
		o.Track = func(int, bool) {}
	}
}

// Validate returns an error if an option is invalid.
func (o *Options) Validate() error {
	if o.PoolBytes < 0 || o.PoolBytes > maxPoolBytes {
		return fault.New(fault.Invalid, "shm: a pool of %d bytes; allowed are 1 to %d, or 0 for the default",
			o.PoolBytes, maxPoolBytes)
	}
	return nil
}

// maxPoolBytes also bounds the size that a peer may announce.
const maxPoolBytes = 1 << 32

// maxArenaBytes bounds the size of registered memory that a peer may announce.
const maxArenaBytes = 1 << 40
