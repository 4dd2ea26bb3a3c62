package exec

import "slices"

// seatEvery is how many operations over windows pass between two times that ranks say where they run.
const seatEvery = 32

// mostKept is how much of a window an operation may use in which ranks keep their core. In longer ones others have work to do, having heard some peers.
const mostKept = 16 << 10

// mostVain is how many waits may be in vain until a rank doubts what it knows of the others: they may have moved since.
const mostVain = 4

// settle is called twice as often by each rank: to say on which core it runs, and, when all must have said it unless there were operations in which not
// everybody waits for everybody, to go elsewhere if too many are there.
func (w *shared) settle(rank int) {
	if w.begun%seatEvery == 0 {
		w.ranks[rank].page.seat.Store(w.begun<<16 | uint64(uint16(w.seats.Here())))
		return
	}
	w.seated, w.mates, w.vain = false, w.mates[:0], 0
	for r := range w.ranks {
		seat := w.ranks[r].page.seat.Load()
		if seat>>16 != w.begun-seatEvery/2 {
			return
		}
		w.seats.Put(r, int(uint16(seat)))
	}
	if w.seated = w.seats.Settle(rank); w.seated {
		w.mates = w.seats.Mates(rank, w.mates)
	}
}

// undisturbing reports whether a rank that waits for a peer holds up nobody if it keeps its core: the peer is on another one, and those on this one have
// come as far in the operation. To yield to them would cost two switches, for nothing, and when it has heard the peer the rank goes on to its next operation:
// so ranks take turns on their core half as often.
func (w *shared) undisturbing(rank, peer int) bool {
	if !w.seated || slices.Contains(w.mates, peer) {
		return false
	}
	own := max(w.notice(rank).word.Load(), w.word(1)) // also where this rank only listens
	for _, mate := range w.mates {
		if w.notice(mate).word.Load() < own {
			return false
		}
	}
	return true
}

// waitedInVain is called when a peer was not heard in the time that a rank keeps its core for it.
func (w *shared) waitedInVain() {
	if w.vain++; w.vain == mostVain {
		w.seated = false
	}
}
