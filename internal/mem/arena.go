package mem

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
)

// Arena is memory of this process for buffers that peers on the same host read in place. It is one
// sparse segment, which each peer maps once. Only ranges that Alloc has returned get pages, so the
// size of an arena costs nothing. All methods may be called by any thread.
//
// Locks are taken in this order: watch, mu.
type Arena struct {
	memory []byte // the whole range; it does not change until it is unmapped
	fd     int    // -1 after the memory is unmapped, and in arenas of peers

	watch    sync.Mutex // guards what follows; held while watchers pin and unpin
	watchers []Pinner
	shown    map[int]int // size of each allocation that they know of, by offset

	mu     sync.Mutex
	closed bool
	free   Ranges        // without pages
	used   map[int]int   // size of each allocation, rounded up to pages, by offset
	pins   map[int]Pins  // of allocations that devices access, by offset
	idle   map[int][]int // offsets of freed allocations that keep their pages, by size
	kept   int           // bytes in idle
	lent   int           // bytes in used
}

// Allocations are whole pages. Large allocations begin where a huge page can begin.
const (
	arenaPage  = 4096
	arenaLarge = 2 << 20
	// arenaKeeps limits the pages kept for freed allocations to 1/arenaKeeps of the Arena. A
	// program that allocates the same sizes again in each step reuses them.
	arenaKeeps = 8
)

// newArena makes the bookkeeping of an arena.
func newArena(memory []byte, fd int) *Arena {
	return &Arena{
		memory: memory, fd: fd, shown: map[int]int{},
		free: NewRanges(len(memory)), used: map[int]int{}, pins: map[int]Pins{}, idle: map[int][]int{},
	}
}

// Bytes returns the whole range. Only memory that Alloc has returned may be written.
func (a *Arena) Bytes() []byte {
	if a == nil {
		return nil
	}
	return a.memory
}

// Size returns the length of the range in bytes, 0 for a nil Arena.
func (a *Arena) Size() int { return len(a.Bytes()) }

// Place returns the offset of p in the arena; ok is false if p points elsewhere.
func (a *Arena) Place(p unsafe.Pointer) (at int, ok bool) {
	if a == nil || len(a.memory) == 0 {
		return 0, false
	}
	off := uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(a.memory)))
	return int(off), off < uintptr(len(a.memory))
}

// InUse returns the number of allocated bytes.
func (a *Arena) InUse() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lent
}

// Alloc allocates memory, aligned to a page at least. Its contents are undefined. The devices have
// access to its pages until it is freed; those that Watch the arena as well, unless they refuse.
func (a *Arena) Alloc(bytes int, devices ...Pinner) ([]byte, error) {
	memory, err := a.alloc(bytes)
	if err != nil {
		return nil, err
	}
	at, _ := a.Place(unsafe.Pointer(unsafe.SliceData(memory)))
	if len(devices) > 0 {
		pins, err := Pin(memory[:cap(memory)], devices...)
		if err != nil {
			return nil, errors.Join(err, a.Free(unsafe.Pointer(unsafe.SliceData(memory))))
		}
		a.mu.Lock()
		a.pins[at] = pins
		a.mu.Unlock()
	}
	a.show(at, cap(memory))
	return memory, nil
}

func (a *Arena) alloc(bytes int) ([]byte, error) {
	if bytes <= 0 || bytes > len(a.memory) {
		return nil, fault.New(fault.Invalid,
			"registered memory of %d bytes was asked for; there are %d (GOCCL_REGISTERED)", bytes, len(a.memory))
	}
	rounded := (bytes + arenaPage - 1) &^ (arenaPage - 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fault.New(fault.Closed, "the registered memory of this process was closed")
	}
	at, err := a.take(rounded)
	if err != nil && a.kept > 0 {
		a.trim()
		at, err = a.take(rounded)
	}
	if err != nil {
		return nil, err
	}
	a.used[at] = rounded
	a.lent += rounded
	inUse.Add(int64(rounded))
	return a.memory[at : at+bytes : at+rounded], nil
}

// take finds a free range and creates its pages.
func (a *Arena) take(bytes int) (int, error) {
	if places := a.idle[bytes]; len(places) > 0 {
		a.idle[bytes] = places[:len(places)-1]
		a.kept -= bytes
		return places[len(places)-1], nil
	}
	align := arenaPage
	if bytes >= arenaLarge {
		align = arenaLarge
	}
	if at, ok := a.free.Take(bytes, align); ok {
		if err := a.commit(at, bytes); err != nil {
			a.free.Free(at, bytes)
			return 0, err
		}
		return at, nil
	}
	return 0, fault.New(fault.System,
		"no room for %d bytes of registered memory: %d of %d are in use; a larger GOCCL_REGISTERED would help",
		bytes, a.lent, len(a.memory))
}

// Free frees the allocation that begins at p. If a device does not give up its access, the
// allocation stays: the pages must not get another use.
func (a *Arena) Free(p unsafe.Pointer) error {
	at, ok := a.Place(p)
	if err := a.conceal(at); err != nil {
		return err
	}
	if err := a.unpin(at); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes := a.used[at]
	if !ok || bytes == 0 {
		return fault.New(fault.Invalid, "no registered memory begins at %#x", uintptr(p))
	}
	delete(a.used, at)
	a.lent -= bytes
	inUse.Add(-int64(bytes))
	a.idle[bytes] = append(a.idle[bytes], at)
	if a.kept += bytes; a.kept > len(a.memory)/arenaKeeps || a.closed {
		a.trim()
	}
	return a.endUnused()
}

// unpin ends the access of devices to the allocation at an offset.
func (a *Arena) unpin(at int) error {
	a.mu.Lock()
	pins := a.pins[at]
	delete(a.pins, at)
	a.mu.Unlock()
	return pins.Unpin() // takes its time, and others may allocate meanwhile
}

// trim returns the pages of freed allocations to the system.
func (a *Arena) trim() {
	for bytes, places := range a.idle {
		for _, at := range places {
			a.release(at, bytes)
			a.free.Free(at, bytes)
		}
	}
	clear(a.idle)
	a.kept = 0
}

// Close ends allocation. The memory stays mapped until every allocation is freed.
func (a *Arena) Close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return a.endUnused()
}

// FD returns the descriptor to pass to peers.
func (a *Arena) FD() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fd
}
