package mem

import (
	"cmp"
	"slices"
	"sync"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
)

// Arena is memory of this process for buffers that its peers on the host may read where they lie.
// It is one sparse segment, which each peer maps once: pages exist only where Alloc gave them out,
// so its size costs nothing. All methods may be called by any thread.
type Arena struct {
	memory []byte // the whole range, the same until the memory is gone
	fd     int    // -1 once the memory is gone, and in those that were received

	mu     sync.Mutex
	closed bool
	free   []extent      // without pages, by place; no two touch
	used   map[int]int   // bytes, rounded up, by place
	idle   map[int][]int // places that were given back and whose pages are kept, by their bytes
	kept   int           // bytes in idle
	lent   int           // bytes in used
}

type extent struct{ at, bytes int }

// Allocations are whole pages. Large ones begin where a huge page may begin.
const (
	arenaPage  = 4096
	arenaLarge = 2 << 20
	// arenaKeeps is the part of an Arena that may have pages which nobody uses: who allocates the
	// same again in each step finds them.
	arenaKeeps = 8
)

// newArena makes the books of an arena.
func newArena(memory []byte, fd int) *Arena {
	return &Arena{memory: memory, fd: fd, free: []extent{{0, len(memory)}}, used: map[int]int{}, idle: map[int][]int{}}
}

// Bytes is the whole range. Only what Alloc gave out may be written.
func (a *Arena) Bytes() []byte {
	if a == nil {
		return nil
	}
	return a.memory
}

// Size is the bytes of the range, 0 of none.
func (a *Arena) Size() int { return len(a.Bytes()) }

// Place is where in the arena a pointer points to; false where it points elsewhere.
func (a *Arena) Place(p unsafe.Pointer) (at int, ok bool) {
	if a == nil || len(a.memory) == 0 {
		return 0, false
	}
	off := uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(a.memory)))
	return int(off), off < uintptr(len(a.memory))
}

// InUse is how many bytes are given out.
func (a *Arena) InUse() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lent
}

// Alloc gives out memory, aligned to a page at least. What is in it is not defined.
func (a *Arena) Alloc(bytes int) ([]byte, error) {
	if bytes <= 0 || bytes > len(a.memory) {
		return nil, fault.New(fault.Invalid, "registered memory of %d bytes was asked for; there are %d (GOCCL_REGISTERED)", bytes, len(a.memory))
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

// take finds a place and makes its pages.
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
	for i, e := range a.free {
		at := (e.at + align - 1) &^ (align - 1)
		if at+bytes > e.at+e.bytes {
			continue
		}
		if err := a.commit(at, bytes); err != nil {
			return 0, err
		}
		before, after := extent{e.at, at - e.at}, extent{at + bytes, e.at + e.bytes - at - bytes}
		rest := slices.DeleteFunc([]extent{before, after}, func(e extent) bool { return e.bytes == 0 })
		a.free = slices.Replace(a.free, i, i+1, rest...)
		return at, nil
	}
	return 0, fault.New(fault.System, "no room for %d bytes of registered memory: %d of %d are in use; a larger GOCCL_REGISTERED would help",
		bytes, a.lent, len(a.memory))
}

// Free takes back what Alloc gave out at p.
func (a *Arena) Free(p unsafe.Pointer) error {
	at, ok := a.Place(p)
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

// trim gives the pages that nobody uses back to the system.
func (a *Arena) trim() {
	for bytes, places := range a.idle {
		for _, at := range places {
			a.release(at, bytes)
			a.free = append(a.free, extent{at, bytes})
		}
	}
	clear(a.idle)
	a.kept = 0
	slices.SortFunc(a.free, func(x, y extent) int { return cmp.Compare(x.at, y.at) })
	joined := a.free[:0]
	for _, e := range a.free {
		if n := len(joined); n > 0 && joined[n-1].at+joined[n-1].bytes == e.at {
			joined[n-1].bytes += e.bytes
			continue
		}
		joined = append(joined, e)
	}
	a.free = joined
}

// Close gives nothing out any more. The memory stays until all that was given out is back.
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

// FD is the descriptor to pass on.
func (a *Arena) FD() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fd
}
