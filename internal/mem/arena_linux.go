package mem

import (
	"errors"

	"github.com/goccl/goccl/ccl/fault"
	"golang.org/x/sys/unix"
)

// NewArena makes an arena of this process. It reserves addresses, but no memory.
func NewArena(bytes int) (*Arena, error) {
	if bytes <= 0 || bytes%arenaLarge != 0 {
		return nil, fault.New(fault.Invalid, "registered memory of %d bytes; want a multiple of %d", bytes, arenaLarge)
	}
	fd, err := unix.MemfdCreate("goccl-registered", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "memfd_create of registered memory")
	}
	if err = unix.Ftruncate(fd, int64(bytes)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals|unix.F_SEAL_SEAL)
	}
	var memory []byte
	if err == nil {
		memory, err = mapShared(fd, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_NORESERVE)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fault.Wrap(fault.System, err,
			"no room for %d bytes of registered memory; a smaller GOCCL_REGISTERED would help", bytes)
	}
	return newArena(memory, fd), nil
}

// MapArena maps an arena of another process, received as the descriptor fd. Its size is sealed, so
// no process can shrink it while it is mapped. Missing pages are created when they are first read.
// The caller keeps fd. Nothing can be allocated in the arena that MapArena returns.
func MapArena(fd, bytes int) (*Arena, error) {
	if err := checkSealed(fd, bytes); err != nil {
		return nil, err
	}
	memory, err := mapShared(fd, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_NORESERVE)
	if err != nil {
		return nil, fault.Wrap(fault.System, err,
			"no room for %d bytes of a peer's registered memory; a smaller GOCCL_REGISTERED on all ranks, or 0, would help",
			bytes)
	}
	unix.Madvise(memory, unix.MADV_DONTDUMP)
	a := newArena(memory, -1)
	a.free = Ranges{}
	return a, nil
}

// commit creates the pages of a range, so that a shortage is an error here and not a signal later.
func (a *Arena) commit(at, bytes int) error {
	if err := commit(a.fd, at, a.memory[at:at+bytes], placementOf(bytes)); err != nil {
		a.release(at, bytes)
		return fault.Wrap(fault.System, err, "no memory for %d bytes of registered memory", bytes)
	}
	return nil
}

// release returns the pages of a range to the system.
func (a *Arena) release(at, bytes int) {
	again(func() error {
		return unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(bytes))
	})
}

// endUnused unmaps a closed arena that has no allocations, and closes its descriptor.
func (a *Arena) endUnused() error {
	if !a.closed || len(a.used) > 0 || a.memory == nil {
		return nil
	}
	memory, fd := a.memory, a.fd
	a.memory, a.fd = nil, -1
	err := unmapShared(memory)
	if fd >= 0 {
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return fault.Wrap(fault.System, err, "unmap of registered memory")
	}
	return nil
}
