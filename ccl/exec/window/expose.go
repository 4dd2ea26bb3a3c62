package window

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

// Exposure describes what this rank exposes in the operation in flight.
type Exposure struct {
	Mask   uint64                     // one bit for each chunk of this rank's window: the chunk is exposed
	Places [program.MaxExposed]uint64 // where in the arena the exposed chunks lie
}

// openArenas finds the registered memory of all ranks. If one rank has none, no rank exposes any.
func (s *Set) openArenas(links []transport.Link, own *mem.Arena) {
	if own.Size() == 0 {
		return
	}
	arenas := make([][]byte, len(links))
	for r, link := range links {
		if link == nil {
			continue
		}
		lender, ok := link.(transport.Lender)
		if !ok {
			return
		}
		if arenas[r] = lender.Arena(); len(arenas[r]) == 0 {
			return
		}
	}
	s.arena, s.arenas = own, arenas
}

// Place returns where a buffer of the given length lies in this rank's registered memory.
func (s *Set) Place(at unsafe.Pointer, bytes int) (place int, ok bool) {
	place, ok = s.arena.Place(at)
	return place, ok && bytes <= s.arena.Size()-place
}

// MayExpose reports whether Expose has something to write. The records of ranks that expose nothing
// stay as they are, so that peers find them in their caches.
func (r *Record) MayExpose(e *Exposure) bool { return e.Mask|r.mask != 0 }

// Expose writes this rank's exposure into its record.
func (r *Record) Expose(e *Exposure) {
	if e.Mask != 0 {
		copy(r.places[:], e.Places[:])
		// A full fence: the caller may have written its buffers by streaming stores.
		atomic.StoreUint64(&r.mask, e.Mask)
	} else if r.mask != 0 {
		r.mask = 0
	}
}

// Exposed returns where a chunk of a rank's window is, if that rank exposes it. The rank's record
// is not trusted: ok is false if the chunk, with the length expected here, would not lie in the
// rank's registered memory.
func (s *Set) Exposed(rank, chunk, bytes int) (at unsafe.Pointer, exposed, ok bool) {
	r := s.Record(rank)
	if r.mask>>chunk&1 == 0 {
		return nil, false, true
	}
	arena, place := s.arenas[rank], atomic.LoadUint64(&r.places[chunk])
	if bytes == 0 || place > uint64(len(arena)) || uint64(bytes) > uint64(len(arena))-place {
		return nil, true, bytes == 0
	}
	return unsafe.Pointer(&arena[place]), true, true
}
