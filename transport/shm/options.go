package shm

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/transport/ring"
)

// DefaultPoolBytes is the memory of a process for large fragments.
const DefaultPoolBytes = 16 << 20

// Options of the fabric.
type Options struct {
	PoolBytes int // memory of this process for large fragments, allocated at the first connection; 0 is DefaultPoolBytes
	// Bell is the page with the bell of this process (NewBell), where other fabrics ring it, too;
	// nil for one of its own.
	Bell *mem.Segment
	// Arena is asked at the first connection for the registered memory of this process, which all
	// peers map; nil for none.
	Arena func() *mem.Arena
}

// EnsureDefaults fills what is zero, and rounds the pool up to whole slots.
func (o *Options) EnsureDefaults() {
	if o.PoolBytes == 0 {
		o.PoolBytes = DefaultPoolBytes
	}
	if rest := o.PoolBytes % ring.LeaseBytes; rest > 0 {
		o.PoolBytes += ring.LeaseBytes - rest
	}
}

// Validate says what is wrong.
func (o *Options) Validate() error {
	if o.PoolBytes < 0 || o.PoolBytes > maxPoolBytes {
		return fault.New(fault.Invalid, "shm: a pool of %d bytes; allowed are 1 to %d, or 0 for the default", o.PoolBytes, maxPoolBytes)
	}
	return nil
}

// maxPoolBytes bounds also what a peer may claim to have.
const maxPoolBytes = 1 << 32

// maxArenaBytes bounds what a peer may claim to have of registered memory.
const maxArenaBytes = 1 << 40
