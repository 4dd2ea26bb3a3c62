package window

import (
	"slices"

	"github.com/goccl/goccl/internal/park"
)

// MaxKept is the largest number of bytes of a window that an operation may use if its ranks are to
// keep their cores while they wait. In longer operations, other ranks have work to do after the
// signals of only some peers.
const MaxKept = 16 << 10

// seatEvery is the number of operations between two announcements of where a rank runs.
const seatEvery = 32

// mostVain is the number of waits in vain after which a rank doubts what it knows about the others:
// they may have moved since.
const mostVain = 4

// placement records on which cores ranks run, where ranks outnumber cores.
type placement struct {
	seats *park.Seats // nil where there are cores for all ranks
	// All ranks have announced where they run; mates are those on the core of this one.
	seated bool
	mates  []int
	vain   int // waits since then in which the peer came too late
}

// Settle is called after each operation. Every seatEvery operations a rank announces on which core
// it runs. Half that interval later all ranks must have announced theirs, unless there were
// operations in which not every rank waits for every other; then this rank moves elsewhere if too
// many ranks share its core.
func (s *Set) Settle(rank int) {
	if s.seats == nil || s.Begun%(seatEvery/2) != 0 {
		return
	}
	if s.Begun%seatEvery == 0 {
		s.ranks[rank].page.seat.Store(s.Begun<<16 | uint64(uint16(s.seats.Here())))
		return
	}
	s.seated, s.mates, s.vain = false, s.mates[:0], 0
	own := 0
	for i, r := range s.here {
		seat := s.ranks[r].page.seat.Load()
		if seat>>16 != s.Begun-seatEvery/2 {
			return
		}
		s.seats.Put(i, int(uint16(seat)))
		if r == rank {
			own = i
		}
	}
	if s.seated = s.seats.Settle(own); s.seated {
		s.mates = s.seats.Mates(own, s.mates)
		for k, i := range s.mates {
			s.mates[k] = s.here[i]
		}
	}
}

// MaySpin reports whether a rank that waits for a peer can keep its core without delaying other
// ranks: the peer is on another core, and the ranks on this core have come as far in the operation.
// Yielding to them would cost two switches for nothing. After the peer's signal the rank goes on to
// its next operation, so ranks take turns on their core half as often.
func (s *Set) MaySpin(rank, peer int) bool {
	if !s.seated || slices.Contains(s.mates, peer) {
		return false
	}
	own := max(s.Record(rank).word.Load(), s.Word(1)) // s.Word(1) also where this rank gives no signal
	for _, mate := range s.mates {
		if s.Record(mate).word.Load() < own {
			return false
		}
	}
	return true
}

// SpunInVain is called when a peer gave no signal in the time that a rank keeps its core for it.
func (s *Set) SpunInVain() {
	if s.vain++; s.vain == mostVain {
		s.seated = false
	}
}
