package window

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

const (
	header = 8192
	// RecordBytes is the distance between two records of a window.
	RecordBytes = int(unsafe.Sizeof(Record{}))
)

// Record is what a rank announces of one operation: how far it has come and, written before the
// first signal, its call.
type Record struct {
	word   atomic.Uint64             // number of the operation, from 1 (48 bits) | signals given in it (16 bits)
	Call   transport.Meta            // fingerprint of the call
	Inline [program.InlineBytes]byte // the chunks of the window if they are short: one cache line travels, not two
	Counts [program.MaxCounts]uint64 // the elements of this rank's blocks, where they differ
	mask   uint64                    // one bit for each chunk of the window: it is exposed, at its place
	places [program.MaxExposed]uint64
}

// page is the header of a window.
type page struct {
	left    atomic.Uint64 // operations that the owner has left
	_       [56]byte
	seat    atomic.Uint64 // where the owner ran (Settle)
	_       [56]byte
	records [plan.WindowRecords]Record
}

// A page fits the header, and records begin on a cache line: otherwise an array has a negative
// length.
var (
	_ [header - unsafe.Sizeof(page{})]byte
	_ [-(unsafe.Sizeof(Record{}) % 64)]byte
)

// Bytes returns the size of a window with slots of the given size, a multiple of mem.Align. An
// operation that needs larger slots runs in pieces.
func Bytes(slot int) int { return header + plan.WindowSlots*slot }

// Set is the windows of a group as one of its ranks sees them. The zero value is a group without
// windows.
type Set struct {
	Slot   int    // bytes of a slot; 0 without windows
	Begun  uint64 // operations that this rank has left, and so the number, from 0, of the one in flight
	least  uint64 // operations that every rank has left, as far as this rank knows
	own    *Rank
	ranks  []Rank
	here   []int // the ranks that have windows: those that share memory with this one, and itself
	memory *mem.Window
	placement

	arena  *mem.Arena // registered memory of this process, if all ranks have some
	arenas [][]byte   // registered memory of each peer
}

// Rank is the window of one rank; zero for a rank that shares no memory with this one.
type Rank struct {
	page *page
	// Each record has its own pointer. To index the array in the page, Go would first read the
	// page's first byte, to fail if the page is nil; that byte is in the line that the owner writes
	// in every operation.
	records [plan.WindowRecords]*Record
	slots   unsafe.Pointer
	known   uint64 // operations that it has left, as far as this rank knows
}

func windowOf(p *page, slots unsafe.Pointer) Rank {
	r := Rank{page: p, slots: slots}
	for turn := range p.records {
		r.records[turn] = &p.records[turn]
	}
	return r
}

// never is more operations than there will be. A rank without window has left that many: no
// operation waits for it.
const never = 1 << 62

// Open finds the windows of the peers, which their links lend; links to other hosts lend none. If
// own is empty, the group has no windows. Release releases own.
func (s *Set) Open(rank int, own *mem.Window, links []transport.Link, arena *mem.Arena) error {
	size := own.Size()
	if size == 0 {
		return nil
	}
	s.Slot = (size - header) / plan.WindowSlots &^ (mem.Align - 1)
	if s.Slot <= 0 {
		return fault.New(fault.Invalid, "a window of %d bytes; the least is %d", size, Bytes(mem.Align))
	}
	s.ranks = make([]Rank, len(links))
	for r, link := range links {
		memory := own.Bytes()
		if link != nil {
			memory = nil
			if lender, ok := link.(transport.Lender); ok {
				memory = lender.Window()
			}
			if memory == nil {
				s.ranks[r].known = never
				continue
			}
		}
		if len(memory) != size {
			return fault.Peer(fault.Internal, r,
				"its window has %d bytes, that of rank %d has %d", len(memory), rank, size)
		}
		s.here = append(s.here, r)
		s.ranks[r] = windowOf((*page)(unsafe.Pointer(&memory[0])), unsafe.Pointer(&memory[header]))
	}
	s.own = &s.ranks[rank]
	s.memory, s.seats = own, park.NewSeats(len(s.here))
	s.openArenas(links, arena)
	return nil
}

// Room is what the windows have for programs: how large they are, and where.
func (s *Set) Room() program.Room {
	room := program.Room{Slot: s.Slot, RecordBytes: RecordBytes, Exposes: s.arenas != nil}
	room.Windows = make([]program.Window, len(s.ranks))
	for _, rank := range s.here {
		r := &s.ranks[rank]
		room.Windows[rank] = program.Window{Inline: unsafe.Pointer(&r.records[0].Inline), Slots: r.slots}
	}
	return room
}

// Release gives back this rank's own window.
func (s *Set) Release() { s.memory.Release() }

// Word returns the word of a record after the given number of signals in the operation in flight.
func (s *Set) Word(signals int) uint64 { return (s.Begun+1)<<16 | uint64(signals) }

// Turn returns which record the operation in flight uses.
func (s *Set) Turn() uint64 { return s.Begun % plan.WindowRecords }

// Own returns this rank's record of a turn.
func (s *Set) Own(turn uint64) *Record { return s.own.records[turn] }

// Has reports whether a rank has a window that this rank reads.
func (s *Set) Has(rank int) bool { return s.Slot > 0 && s.ranks[rank].page != nil }

// Rank returns the window of a rank.
func (s *Set) Rank(rank int) *Rank { return &s.ranks[rank] }

// Record returns what a rank announces of the operation in flight.
func (s *Set) Record(rank int) *Record { return s.ranks[rank].records[s.Turn()] }

// Record returns what the rank announces in a turn.
func (r *Rank) Record(turn uint64) *Record { return r.records[turn] }

// Entered is called when the rank was found to be in an operation, and so has left the earlier
// ones.
func (r *Rank) Entered(operation uint64) { r.known = max(r.known, operation) }

// Publish makes a word, and everything that this rank wrote before it, visible to the peers.
func (r *Record) Publish(word uint64) { park.Publish(&r.word, word) }

// Word returns the word that the rank published last.
func (r *Record) Word() uint64 { return r.word.Load() }

// Differs reports whether a rank has announced something that must be examined: another call or, if
// exposes is set, exposed memory.
func (r *Record) Differs(call *transport.Meta, exposes bool) bool {
	return r.Call[0] != call[0] || r.Call[1] != call[1] || r.Call[2] != call[2] || exposes && r.mask != 0
}

// Heard reports whether a rank has given at least the given number of signals in the operation that
// this rank is in.
func (s *Set) Heard(rank, signals int) bool {
	r := &s.ranks[rank]
	if r.records[s.Turn()].word.Load() < s.Word(signals) {
		return false
	}
	r.Entered(s.Begun)
	return true
}

// FirstBehind returns a rank that has not yet left the operation the given number of turns ago,
// whose memory the operation in flight uses again, or -1. What a rank announces may be wrong; then
// its own group gets wrong data, and nothing else depends on it.
func (s *Set) FirstBehind(turns uint64) int {
	if s.least+turns > s.Begun {
		return -1
	}
	return s.firstBehind(turns)
}

func (s *Set) firstBehind(turns uint64) int {
	least := s.Begun
	for r := range s.ranks {
		each := &s.ranks[r]
		if each.known+turns <= s.Begun {
			if each.known = each.page.left.Load(); each.known+turns <= s.Begun {
				return r
			}
		}
		least = min(least, each.known)
	}
	s.least = least
	return -1
}

// Behind returns the ranks of which FirstBehind returns the first, at most most of them.
func (s *Set) Behind(turns uint64, most int) (ranks []int) {
	for r := range s.ranks {
		if len(ranks) < most && s.ranks[r].known+turns <= s.Begun && s.ranks[r].page.left.Load()+turns <= s.Begun {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// SlotOf returns the slot that the operation in flight uses in the window of a rank.
func (s *Set) SlotOf(rank int) unsafe.Pointer {
	return unsafe.Add(s.ranks[rank].slots, int(s.Begun%plan.WindowSlots)*s.Slot)
}

// Leave announces to the peers that this rank has left the operation in flight. It ends with a
// fence, so that a later check for sleeping threads misses none.
func (s *Set) Leave() {
	s.Begun++
	s.own.page.left.Store(s.Begun)
}
