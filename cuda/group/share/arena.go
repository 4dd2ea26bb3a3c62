package share

import (
	"errors"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
	"github.com/goccl/goccl/internal/mem"
)

// Arena is memory of one device in which a process allocates tensors that its peers read in place.
// It is allocated as a whole, and each group of which a window lends it shares it once. Any thread
// may call its methods.
type Arena struct {
	ctx    cuda.Context
	memory cuda.Memory
	bytes  int

	mu     sync.Mutex
	closed bool
	free   mem.Ranges
	used   map[cuda.Ptr]int // bytes of each allocation, rounded up
	lent   int              // bytes in used
}

// Allocations are multiples of arenaUnit, as are their addresses: what torch's allocator for CUDA
// rounds to as well.
const arenaUnit = 512

// MostArena is the most bytes of an arena: every offset in it fits a place (kernel.Place).
const MostArena = 1 << kernel.PlaceBits

// NewArena makes an arena of the device of a context, which it takes over unless it fails. It may
// wait for streams of the process.
func NewArena(ctx cuda.Context, bytes int) (*Arena, error) {
	info := ctx.Info()
	if !info.Shares {
		return nil, fault.New(fault.NotSupported, "device %d (%s) cannot share its memory with other processes, so it has "+
			"no registered memory; GOCCL_CUDA_REGISTERED=0 does without", info.Index, info.Name)
	}
	a := &Arena{ctx: ctx, bytes: bytes, free: mem.NewRanges(bytes), used: map[cuda.Ptr]int{}}
	err := cuda.WithContext(ctx, func() (err error) {
		a.memory, err = ctx.Alloc(bytes)
		return err
	})
	if err != nil {
		code := fault.Internal
		if f := (*fault.Error)(nil); errors.As(err, &f) {
			code = f.Code
		}
		return nil, fault.Wrap(code, err, "no %d bytes of registered memory on device %d (%s); a smaller "+
			"GOCCL_CUDA_REGISTERED, or 0, would help", bytes, info.Index, info.Name)
	}
	return a, nil
}

// Alloc allocates memory. Its contents are undefined.
func (a *Arena) Alloc(bytes int) (cuda.Ptr, error) {
	if bytes <= 0 || bytes > a.bytes {
		return 0, fault.New(fault.Invalid, "registered memory of %d bytes on device %d was asked for; there are %d "+
			"(GOCCL_CUDA_REGISTERED)", bytes, a.ctx.Info().Index, a.bytes)
	}
	rounded := (bytes + arenaUnit - 1) &^ (arenaUnit - 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, fault.New(fault.Closed, "the registered memory of device %d was closed", a.ctx.Info().Index)
	}
	at, ok := a.free.Take(rounded, arenaUnit)
	if !ok {
		return 0, fault.New(fault.System, "no room for %d bytes of registered memory on device %d: %d of %d are in use; a "+
			"larger GOCCL_CUDA_REGISTERED would help", bytes, a.ctx.Info().Index, a.lent, a.bytes)
	}
	p := a.memory.Ptr() + cuda.Ptr(at)
	a.used[p] = rounded
	a.lent += rounded
	return p, nil
}

// Free gives memory back. Nothing that is enqueued may use it any more.
func (a *Arena) Free(p cuda.Ptr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes := a.used[p]
	if bytes == 0 {
		return fault.New(fault.Invalid, "no registered memory of device %d begins at %#x", a.ctx.Info().Index, uint64(p))
	}
	delete(a.used, p)
	a.lent -= bytes
	a.free.Free(int(p-a.memory.Ptr()), bytes)
	return a.endUnused()
}

// FreeAfter gives memory back when a stream, whose handle of the driver it gets, has ended. If that
// fails, the memory stays allocated: nobody knows whether it is in use.
func (a *Arena) FreeAfter(p cuda.Ptr, native uintptr) error {
	if err := cuda.WithContext(a.ctx, func() error { return a.ctx.Adopt(native).Synchronize() }); err != nil {
		return err
	}
	return a.Free(p)
}

// Bytes returns the size of the arena.
func (a *Arena) Bytes() int { return a.bytes }

// InUse returns the number of allocated bytes.
func (a *Arena) InUse() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lent
}

// Memory returns the memory of the arena.
func (a *Arena) Memory() cuda.Memory { return a.memory }

// Close ends allocation, after all groups that use the arena were closed. The memory and the
// context are given back when everything has been freed.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return a.endUnused()
}

func (a *Arena) endUnused() error {
	if !a.closed || len(a.used) > 0 {
		return nil
	}
	return errors.Join(cuda.WithContext(a.ctx, a.memory.Free), a.ctx.Release())
}
