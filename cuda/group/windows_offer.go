package group

import (
	"slices"

	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
)

// A long call has its offers, which are what a rank does in a piece before it first waits, in a
// stream of their own, ahead of the rest: the offer of the next piece goes out while what the peers
// have offered comes in. The offers do not wait for the rest. A slot is offered again when all
// peers have left it, and one of them has waited for the last signal of this rank, after which the
// program leaves its own window alone. The rest of a piece comes after its offer: in place, it
// overwrites what was offered.

// offering is a sink that finds the offer: what a program does before it first waits.
type offering struct {
	at, n  int // instructions so far, and up to the last signal of the offer
	waited bool
	own    bool // it has used its own window since its last signal
}

func (o *offering) Enter()        { o.at++ }
func (o *offering) Leave()        { o.at++ }
func (o *offering) Wait(int, int) { o.at++; o.waited = true }

func (o *offering) Signal(int) {
	o.at++
	if o.own = false; !o.waited {
		o.n = o.at
	}
}

func (o *offering) Copies(lane []program.Instruction) (int, error) {
	return 1, o.Reduce(&lane[0])
}

func (o *offering) Reduce(b *program.Instruction) error {
	o.at++
	o.own = o.own || b.Dst.Base == program.BaseOwn || b.FusedCopy.Base == program.BaseOwn ||
		slices.ContainsFunc(b.Src, func(o program.Operand) bool { return o.Base == program.BaseOwn })
	return nil
}

// offering returns the number of instructions that are the offer, alike for all pieces: 0 if there
// is none, or if the program uses its own window after its last signal.
func (w *windows) offering() int {
	w.offered = offering{}
	if w.Emit(w.Program.Lanes[0], &w.offered) != nil || w.offered.own {
		return 0
	}
	return w.offered.n
}

// follow has a stream wait for what another has got so far.
func (w *windows) follow(later, earlier cuda.Stream) error {
	if err := w.Flush(); err != nil {
		return err
	}
	if err := w.offers.Record(earlier); err != nil {
		return err
	}
	return later.Wait(w.offers)
}

// offer enqueues the instructions of an offer in the stream ahead. The other one waits for a word
// that says so, among others: that costs the driver nothing more.
func (w *windows) offer(o *Op, piece int, lane []program.Instruction) error {
	main, words := w.Stream, w.Words
	w.Stream, w.Words, w.Fresh = w.ahead, w.aside[:0], [page.WordsOfPeer]int{}
	w.seenAt, w.seenAhead = w.seenAhead, w.seenAt
	err := w.part(o, piece, lane)
	w.seenAt, w.seenAhead = w.seenAhead, w.seenAt
	offered := page.At(o.first, piece, 1)
	if err == nil {
		w.own(w.layout.Offered(), offered, false)
		err = w.Flush()
	}
	w.Stream, w.Words, w.aside = main, words, w.Words
	if err == nil {
		w.own(w.layout.Offered(), offered, true)
	}
	return err
}
