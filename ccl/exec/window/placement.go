package window

import (
	"slices"

	"github.com/goccl/goccl/ccl/park"
)

// MaxKept is how much of a window an operation may use in which ranks keep their core while they
// wait. In longer ones others have work to do, having heard some peers.
const MaxKept = 16 << 10

// seatEvery is how many operations pass between two times that ranks say where they run.
const seatEvery = 32

// mostVain is how many waits may be in vain until a rank doubts what it knows of the others: they
// may have moved since.
const mostVain = 4

// placement is on which cores ranks run, where they outnumber them.
type placement struct {
	seats *park.Seats // nil where there are cores for all ranks
	// All ranks have said where they run, and those are on the core of this one.
	seated bool
	mates  []int
	vain   int // waits since then for which the peer was too late
}

// Settle is called behind each operation. Now and then a rank says on which core it runs, and, when
// all must have said it unless there were operations in which not everybody waits for everybody,
// goes elsewhere if too many are there.
func (s *Set) Settle(rank int) {
	if s.seats == nil || s.Begun%(seatEvery/2) != 0 {
		return
	}
	if s.Begun%seatEvery == 0 {
		s.ranks[rank].page.seat.Store(s.Begun<<16 | uint64(uint16(s.seats.Here())))
		return
	}
	s.seated, s.mates, s.vain = false, s.mates[:0], 0
	for r := range s.ranks {
		seat := s.ranks[r].page.seat.Load()
		if seat>>16 != s.Begun-seatEvery/2 {
			return
		}
		s.seats.Put(r, int(uint16(seat)))
	}
	if s.seated = s.seats.Settle(rank); s.seated {
		s.mates = s.seats.Mates(rank, s.mates)
	}
}

// MaySpin reports whether a rank that waits for a peer delays nobody if it keeps its core: the peer
// is on another one, and those on this one have come as far in the operation. To yield to them
// would cost two switches, for nothing, and when it has heard the peer the rank goes on to its next
// operation: so ranks take turns on their core half as often.
func (s *Set) MaySpin(rank, peer int) bool {
	if !s.seated || slices.Contains(s.mates, peer) {
		return false
	}
	own := max(s.Record(rank).word.Load(), s.Word(1)) // also where this rank only listens
	for _, mate := range s.mates {
		if s.Record(mate).word.Load() < own {
			return false
		}
	}
	return true
}

// SpunInVain is called when a peer was not heard in the time that a rank keeps its core for it.
func (s *Set) SpunInVain() {
	if s.vain++; s.vain == mostVain {
		s.seated = false
	}
}
