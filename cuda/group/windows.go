package group

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/page"
)

// windows is the way of collectives through memory that the devices of all ranks reach. The program
// of a call (package program) becomes work of a stream, or of two (windows_offer.go): copies,
// kernels and words. Between hosts, messages go with them (rails.go).
type windows struct {
	passive
	*shared

	// Used only by Enqueue.
	emit.Emitter // its places are the windows
	ahead        cuda.Stream
	aside        []cuda.WordOp // for the words of that stream
	offers       cuda.Event
	forms        []form // that some calls have instead of a stream of pieces
	lows         map[choice]*program.Lowered
	op           uint64                   // operations so far
	first        uint64                   // operation that is being enqueued,
	piece        int                      // and its piece
	freeAt       [plan.WindowSlots]uint64 // by slot: where the peers are when they have left it
	seenAt       []uint64                 // by peer: where it is when the stream has waited as far as now
	seenAhead    []uint64                 // the same when the stream ahead began with the call
	offered      offering

	queue queue       // of calls that have not ended
	over  atomic.Bool // the streams have ended after the group has failed

	// Used only by the device thread.
	released  [][3]uint64 // by peer: what was stored in its words to let go what waits for them; or 0
	stopped   bool        // the group has failed before the streams had ended a call
	lateSince time.Time   // when a call was first found past its deadline
}

// form is another form of a call than a stream of pieces: one kernel (interpreter), or a stream
// with messages between hosts (rails).
type form interface {
	// learn finds out whether and how calls by a plan have this form. All ranks come to the same.
	learn(p *plan.Plan, low *program.Lowered)
	// suits reports whether a call has it, and compiles its program then.
	suits(o *Op) (bool, error)
	enqueue(o *Op) error
	// awaits returns the rank that a call has waited for long, or -1.
	awaits(o *Op) int
}

// choice identifies a plan.
type choice struct {
	split
	root int
}

func (w *windows) suits(o *Op) (bool, error) {
	low, err := w.lowered(&o.call)
	o.low = low
	return low != nil && err == nil && o.capture == 0, err
}

// lowered returns the plan of a call, or nil if the call does not go over windows. All ranks answer
// alike.
func (w *windows) lowered(call *exec.Call) (*program.Lowered, error) {
	if !call.Coll.Valid() || call.Coll == dtype.Barrier {
		return nil, nil
	}
	planner := w.g.opts.WindowPlanner
	key := choice{split: split{call.Coll, planner.Choose(call.Coll, call.Bytes())}}
	if call.Coll.Rooted() {
		key.root = call.Root
	}
	if low, known := w.lows[key]; known {
		return low, nil
	}
	p, err := planner.Make(key.algorithm, plan.Spec{Coll: call.Coll, Ranks: w.g.size, Root: key.root})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "no plan for %v", call.Coll)
	}
	low, err := w.lower(p)
	if err == nil {
		w.lows[key] = low
	}
	return low, err
}

// lower prepares a plan. It returns nil if the plan is not for windows.
func (w *windows) lower(p *plan.Plan) (*program.Lowered, error) {
	if w.g.size == 1 {
		return program.Lower(p, &w.Room) // it only copies
	}
	if p.Needs&plan.Gets == 0 {
		return nil, nil
	}
	if p.Needs&plan.Messages != 0 {
		streams, err := program.Streams(p)
		if errors.Is(err, fault.NotSupported) || err == nil && !onRails(streams, w.g.opts.Peers.On) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p = streams
	}
	low, err := program.Lower(p, &w.Room)
	if err != nil || !low.Words {
		return nil, err
	}
	for _, f := range w.forms {
		f.learn(p, low)
	}
	return low, nil
}

// enqueue puts a call behind the caller's stream.
func (w *windows) enqueue(o *Op, on cuda.Stream) error {
	if err := w.g.callers.at.Record(on); err != nil {
		return err
	}
	if err := w.Stream.Wait(w.g.callers.at); err != nil {
		return err
	}
	w.Words, w.Fresh = w.Words[:0], [page.WordsOfPeer]int{}
	w.own(w.layout.Begun(), page.At(o.first, 0, 0), false)
	w.Lends = false
	for _, f := range w.forms {
		if suits, err := f.suits(o); err != nil {
			return err
		} else if suits {
			return f.enqueue(o)
		}
	}
	if w.Decide(w.g.rank, &o.call, o.low); w.Lends {
		w.g.ops.exposed.Add(1)
	}
	if err := w.pieces(o); err != nil {
		return err
	}
	return w.endPieces(o)
}

// endPieces ends a call that was enqueued in pieces.
func (w *windows) endPieces(o *Op) error {
	if !o.call.Coll.LengthsKnown() {
		w.tell(page.Offer, page.At(o.first+1, 0, 0)) // a peer may have more pieces
	}
	return w.end(o, page.Left, page.Signal) // so that who sees the signal knows that all is over (lost)
}

func (w *windows) announce(o *Op) { w.publish(o) }

func (w *windows) abandon(o *Op, on cuda.Stream) {
	if w.follow(w.Stream, w.ahead) == nil && o.end.Record(w.Stream) == nil {
		on.Wait(o.end)
	}
}

// end tells the peers, by some words, and the host that a call has ended.
func (w *windows) end(o *Op, words ...int) error {
	next := page.At(o.first+1, 0, 0)
	for _, word := range words {
		w.tell(word, next)
	}
	if w.Lends {
		w.drain(next)
	}
	w.own(w.layout.Ended(), next, false)
	if err := w.Flush(); err != nil {
		return err
	}
	return o.end.Record(w.Stream)
}

// pieces enqueues the pieces of a call.
func (w *windows) pieces(o *Op) error {
	offer := 0
	for piece := 0; ; piece++ {
		if err := w.Compile(&o.call, o.low, piece); err != nil {
			return err
		}
		w.LendPiece()
		o.cut.pieces = w.Program.Last + 1
		if piece == 0 && w.Program.Last > 0 && !w.Lends {
			if offer = w.offering(); offer > 0 {
				if err := w.follow(w.ahead, w.Stream); err != nil {
					return err
				}
				w.seenAhead = append(w.seenAhead[:0], w.seenAt...)
			}
		}
		if err := w.enqueuePiece(o, piece, offer); err != nil {
			return err
		}
		if piece == w.Program.Last {
			return nil
		}
	}
}

// enqueuePiece enqueues a piece of a call, the first instructions of it ahead of the rest: its
// offer.
func (w *windows) enqueuePiece(o *Op, piece, offer int) error {
	w.Fresh = [page.WordsOfPeer]int{} // each piece has its signals
	lane := w.Program.Lanes[0]
	if offer > 0 {
		if err := w.offer(o, piece, lane[:offer]); err != nil {
			return err
		}
		lane = lane[offer:]
	}
	return w.part(o, piece, lane)
}

// part enqueues instructions of a piece.
func (w *windows) part(o *Op, piece int, lane []program.Instruction) error {
	w.first, w.piece = o.first, piece
	w.Call, w.Slot = &o.call, int((o.first+uint64(piece))%plan.WindowSlots)
	return w.Emit(lane, w)
}

// Enter has the stream wait until all peers have left the slot.
func (w *windows) Enter() {
	if !w.Signals() {
		return
	}
	for _, peer := range w.peers {
		if page.Before(w.seenAt[peer], w.freeAt[w.Slot]) {
			w.await(peer, page.Left, w.freeAt[w.Slot])
			w.seenAt[peer] = w.freeAt[w.Slot]
		}
	}
}

func (w *windows) Signal(nth int) {
	word := page.Signal
	if nth <= w.Program.Low.Offered[w.Room.Rank] {
		word = page.Offer
	}
	w.tell(word, page.At(w.first, w.piece, nth))
}

// Wait has the stream wait for a signal of a peer. One that has come to a later piece has left this
// one. Its offers may be one piece ahead of the rest.
func (w *windows) Wait(peer, nth int) {
	value := page.At(w.first, w.piece, nth)
	if nth <= w.Program.Low.Offered[peer] {
		if come := page.At(w.first, max(w.piece-1, 0), 0); page.Before(w.seenAt[peer], come) {
			w.seenAt[peer] = come
		}
		w.await(peer, page.Offer, value)
		return
	}
	w.seenAt[peer] = page.At(w.first, w.piece, 0)
	w.await(peer, page.Signal, value)
}

func (w *windows) Leave() {
	left := page.At(w.first, w.piece+1, 0)
	if w.Signals() {
		w.freeAt[w.Slot] = left
	}
	w.tell(page.Left, left)
}

// tell has the stream write a word of this rank into the pages of all peers. What it would have
// written before, with no wait in between, is left out.
func (w *windows) tell(word int, value uint64) {
	if at := w.Fresh[word] - 1; at >= 0 {
		w.Words = slices.Delete(w.Words, at, at+len(w.peers))
		for other, later := range w.Fresh {
			if later > at+1 {
				w.Fresh[other] -= len(w.peers)
			}
		}
	}
	w.Fresh[word] = len(w.Words) + 1
	for _, peer := range w.peers {
		w.Words = append(w.Words, cuda.WordOp{At: w.pages[peer].Device + cuda.Ptr(w.layout.Of(w.g.rank, word)),
			Value: value})
	}
}

// await has the stream wait for a word of a peer in the page of this rank.
func (w *windows) await(peer, word int, value uint64) {
	w.own(w.layout.Of(peer, word), value, true)
}

// own has the stream write a word in the page of this rank, or wait for it.
func (w *windows) own(word int, value uint64, waits bool) {
	if waits {
		w.Fresh = [page.WordsOfPeer]int{}
	}
	w.Words = append(w.Words, cuda.WordOp{At: w.pages[w.g.rank].Device + cuda.Ptr(word), Value: value, Wait: waits})
}

// lend sets up lending, if any rank has an arena. Reads of the windows look for places then.
func (w *windows) lend(arenas []emit.Lent) {
	if !slices.ContainsFunc(arenas, func(a emit.Lent) bool { return a.Bytes > 0 }) {
		return
	}
	w.Room.Exposes = true
	w.Lending = emit.Lending{Arenas: arenas}
	if a := w.g.opts.Window.Arena; a != nil {
		w.Arena = emit.Lent{Base: a.Memory().Ptr(), Bytes: a.Bytes()}
	}
	for _, peer := range w.pages {
		w.Records = append(w.Records, peer.Device+cuda.Ptr(w.layout.Place(0, 0)))
	}
}

// drain has the stream wait until all peers have ended a call.
func (w *windows) drain(next uint64) {
	for _, peer := range w.peers {
		w.await(peer, page.Left, next)
		w.seenAt[peer] = next
	}
}
