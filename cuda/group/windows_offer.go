package group

import (
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
)

// A long call has its offers, which are what a rank does in a piece before it first waits, in a
// stream of their own, ahead of the rest: the offer of the next piece goes out while what the peers
// have offered comes in. The offers do not wait for the rest. A slot is offered again when all
// peers have left it, and one of them has waited for the last signal of this rank, after which a
// program that mayOffer leaves its own window alone. The rest of a piece comes after its offer: in
// place, it overwrites what was offered.

// offering returns the number of instructions that are the offer.
func (w *windows) offering() (n int) {
	for i := range w.program.Lanes[0] {
		switch w.program.Lanes[0][i].Op {
		case program.OpWait:
			return n
		case program.OpSignal:
			n = i + 1
		}
	}
	return n
}

// mayOffer reports whether the program offers something, and leaves its own window alone after its
// last signal.
func (w *windows) mayOffer() bool {
	lane := w.program.Lanes[0]
	for i := len(lane) - 1; i >= 0; i-- {
		b := &lane[i]
		if b.Op == program.OpSignal {
			return w.offering() > 0
		}
		if b.Dst.Base == program.BaseOwn || b.FusedCopy.Base == program.BaseOwn {
			return false
		}
		for k := range b.Src {
			if b.Src[k].Base == program.BaseOwn {
				return false
			}
		}
	}
	return false
}

// follow has a stream wait for what another has got so far.
func (w *windows) follow(later, earlier cuda.Stream) error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.offers.Record(earlier); err != nil {
		return err
	}
	return later.Wait(w.offers)
}

// offer enqueues what f does in the stream ahead.
func (w *windows) offer(f func() error) error {
	if err := w.flush(); err != nil {
		return err
	}
	main := w.stream
	w.stream = w.ahead
	err := f()
	if err == nil {
		err = w.follow(main, w.ahead)
	}
	w.stream = main
	return err
}
