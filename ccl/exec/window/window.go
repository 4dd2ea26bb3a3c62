package window

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

const (
	header = 8192
	// InlineBytes is how much of a window may stand in a record in place of a slot.
	InlineBytes = 32
	// MaxCounts is the largest group whose ranks can announce a length for each.
	MaxCounts = 48
	// MaxExposed is how many chunks a window has at most that exposes any.
	MaxExposed = 47
	// MaxSignals is how many signals a rank can give in an operation.
	MaxSignals = 1<<16 - 1
	// RecordBytes is how far the records of a window lie apart.
	RecordBytes = int(unsafe.Sizeof(Record{}))
)

// Record is what a rank announces of one operation: how far it has come, and, written before the
// first signal, what it was called for.
type Record struct {
	word   atomic.Uint64     // number of the operation, from 1 (48) | signals that the rank has given in it (16)
	Call   transport.Meta    // of the call
	Inline [InlineBytes]byte // the chunks of the window where they are short: then one cache line travels, and not two
	Counts [MaxCounts]uint64 // the elements of this rank's blocks, where they differ
	mask   uint64            // by chunk of the window: it is exposed, and lies at
	places [MaxExposed]uint64
}

// page is the header of a window.
type page struct {
	left    atomic.Uint64 // operations that the owner has left
	_       [56]byte
	seat    atomic.Uint64 // where the owner ran (settle)
	_       [56]byte
	records [plan.WindowNotices]Record
}

// A page fits the header, and records begin a cache line: no array may have a length below zero.
var (
	_ [header - unsafe.Sizeof(page{})]byte
	_ [-(unsafe.Sizeof(Record{}) % 64)]byte
)

// Bytes is the size of a window of which one operation may use slot bytes, a multiple of mem.Align.
// Longer operations run in pieces.
func Bytes(slot int) int { return header + plan.WindowSlots*slot }

// Set is the windows of a group as one of its ranks sees them. The zero value is that of a group
// without.
type Set struct {
	Slot   int    // bytes of a slot; 0 without windows
	Begun  uint64 // operations that this rank has left; so the one under way has this number, from 0
	least  uint64 // operations that every rank has left, as far as this rank has seen
	own    *Rank
	ranks  []Rank
	memory *mem.Window
	placement

	arena  *mem.Arena // registered memory of this process, where all ranks have such
	arenas [][]byte   // that of each peer

	// What this rank called, by turn: peers that have called another thing may have said so only
	// then.
	past [plan.WindowNotices]transport.Meta
}

// Rank is the window of one rank.
type Rank struct {
	page *page
	// Each record has a pointer of its own because Go, asked for one of the page's by its number,
	// would first read the page's first byte, to fail if the page is nil. That is in the line that
	// the owner writes in every operation.
	records [plan.WindowNotices]*Record
	slots   unsafe.Pointer
	known   uint64 // operations that it has left, as far as this rank has seen
}

func windowOf(p *page, slots unsafe.Pointer) Rank {
	r := Rank{page: p, slots: slots}
	for turn := range p.records {
		r.records[turn] = &p.records[turn]
	}
	return r
}

// Open looks for the windows of all peers, which their links lend. Without an own window there are
// none. The Set releases that.
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
			memory = link.Window()
		}
		if len(memory) != size {
			return fault.Peer(fault.Internal, r, "its window has %d bytes, that of rank %d has %d", len(memory), rank, size)
		}
		s.ranks[r] = windowOf((*page)(unsafe.Pointer(&memory[0])), unsafe.Pointer(&memory[header]))
	}
	s.own = &s.ranks[rank]
	s.memory, s.seats = own, park.NewSeats(len(s.ranks))
	s.openArenas(links, arena)
	return nil
}

// Planned is the windows of a group of so many ranks that nobody uses: for programs that are only
// looked at.
func Planned(ranks, slot int) *Set {
	return &Set{Slot: slot, ranks: make([]Rank, ranks), arenas: make([][]byte, ranks)}
}

// Release gives the own window back.
func (s *Set) Release() { s.memory.Release() }

// Word is what stands in a record after so many signals in the operation under way.
func (s *Set) Word(signals int) uint64 { return (s.Begun+1)<<16 | uint64(signals) }

// Turn is which record the operation under way uses.
func (s *Set) Turn() uint64 { return s.Begun % plan.WindowNotices }

// Own is this rank's record of a turn.
func (s *Set) Own(turn uint64) *Record { return s.own.records[turn] }

// Rank is the window of a rank.
func (s *Set) Rank(rank int) *Rank { return &s.ranks[rank] }

// Record is what a rank announces of the operation under way.
func (s *Set) Record(rank int) *Record { return s.ranks[rank].records[s.Turn()] }

// Record is what the rank announces in a turn.
func (r *Rank) Record(turn uint64) *Record { return r.records[turn] }

// Entered is called when the rank was found to be in an operation: it has left those before.
func (r *Rank) Entered(operation uint64) { r.known = max(r.known, operation) }

// Inline is where the chunks of the rank's window lie that stand in records, in the first turn;
// those of later turns lie RecordBytes behind.
func (r *Rank) Inline() unsafe.Pointer { return unsafe.Pointer(&r.records[0].Inline) }

// Slots is the first slot of the rank's window. The others follow.
func (r *Rank) Slots() unsafe.Pointer { return r.slots }

// Publish makes a word, and all that this rank wrote before, visible to its peers.
func (r *Record) Publish(word uint64) { park.Publish(&r.word, word) }

// Word is what the rank has published last.
func (r *Record) Word() uint64 { return r.word.Load() }

// Foretell publishes for another rank. It is for tests.
func (r *Rank) Foretell(turn, word, left uint64) {
	r.records[turn].word.Store(word)
	r.page.left.Store(left)
}

// Differs reports whether a rank has announced something that has to be looked at: another call,
// or, where that may be, memory that it exposes.
func (r *Record) Differs(call *transport.Meta, exposes bool) bool {
	return r.Call[0] != call[0] || r.Call[1] != call[1] || r.Call[2] != call[2] || exposes && r.mask != 0
}

// Heard reports whether a rank has given so many signals in the operation that this rank is in.
func (s *Set) Heard(rank, signals int) bool {
	r := &s.ranks[rank]
	if r.records[s.Turn()].word.Load() < s.Word(signals) {
		return false
	}
	r.Entered(s.Begun)
	return true
}

// FirstBehind is a rank that has not left the operation so many turns ago, whose memory the one
// under way uses again, or -1. What a rank says of itself may be wrong, and then its own group gets
// wrong data; nothing else depends on it.
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

// SlotOf is the memory of the slot that the operation under way uses, in the window of a rank.
func (s *Set) SlotOf(rank int) unsafe.Pointer {
	return unsafe.Add(s.ranks[rank].slots, int(s.Begun%plan.WindowSlots)*s.Slot)
}

// Leave tells the peers that this rank has left the operation that it called so. It ends with a
// fence, after which nobody who sleeps is missed.
func (s *Set) Leave(call *transport.Meta) {
	past := &s.past[s.Turn()]
	past[0], past[1], past[2] = call[0], call[1], call[2] // one by one: so they were stored just now
	s.Begun++
	s.own.page.left.Store(s.Begun)
}

// Diverged is the last operation of which this rank and a peer have said different things, as
// differ finds, if neither has forgotten it.
func (s *Set) Diverged(peer int, differ func(mine, theirs transport.Meta) bool) (mine, theirs transport.Meta, found bool) {
	if s.Slot == 0 {
		return mine, theirs, false
	}
	for back := uint64(1); back < plan.WindowNotices && back <= s.Begun; back++ {
		at := s.Begun - back
		r := s.ranks[peer].records[at%plan.WindowNotices]
		mine, theirs = s.past[at%plan.WindowNotices], r.Call
		if r.word.Load()>>16 == at+1 && differ(mine, theirs) {
			return mine, theirs, true
		}
	}
	return mine, theirs, false
}
