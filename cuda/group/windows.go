package group

import (
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
)

// windows is the way of collectives through memory that the devices of all ranks reach. The program
// of a call (package program) becomes work of a stream, or of two (windows_offer.go): copies,
// kernels and words.
type windows struct {
	g       *Group
	layout  layout
	page    cuda.Registered // of this rank
	pages   []page          // by rank
	giving  []func() error  // gives back, last first, what was opened
	owned   int             // the first of these: what is not of the peers
	left    bool            // this rank uses nothing of the others any more; guarded by Thread.sharing
	opening *opening        // nil when the ranks have agreed

	// Used only by Enqueue.
	emitter // its places are the windows
	ahead   cuda.Stream
	offers  cuda.Event
	graphs  *graphs // of calls in streams that are in capture
	lows    map[choice]*program.Lowered
	op      uint64                   // operations so far
	used    [plan.WindowSlots]uint64 // by slot: where the peers are when they have left it
	heard   []uint64                 // by peer: where it is when the stream has waited as far as now
	known   []uint64                 // the same when the stream ahead began with the call

	handing sync.Mutex
	handed  []*Op // not ended, oldest first

	// Used only by the device thread.
	compared  []uint64  // by peer: the operations whose prints were compared
	over      bool      // the stream has ended after the group has failed
	lateSince time.Time // when a call was first found past its deadline
}

// choice identifies a plan.
type choice struct {
	split
	root int
}

// lowered returns the plan of a call, or nil if the call does not go over windows. All ranks answer
// alike.
func (w *windows) lowered(call *exec.Call) (*program.Lowered, error) {
	if w == nil || !call.Coll.Valid() || call.Coll == dtype.Barrier {
		return nil, nil
	}
	planner := w.g.opts.WindowPlanner
	key := choice{split: split{call.Coll, planner.Choose(call.Coll, w.g.size, call.Bytes())}}
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
	var low *program.Lowered
	if p.Needs&plan.Gets != 0 {
		if low, err = program.Lower(p, &w.room); err != nil {
			return nil, err
		}
		if !low.Words {
			low = nil // it has messages, too
		}
	}
	w.lows[key] = low
	return low, nil
}

// enqueue puts a call behind the caller's stream.
func (w *windows) enqueue(o *Op, low *program.Lowered, on cuda.Stream) error {
	if err := w.g.caller.Record(on); err != nil {
		return err
	}
	if err := w.stream.Wait(w.g.caller); err != nil {
		return err
	}
	w.words = append(w.words[:0], cuda.WordOp{At: w.pages[w.g.rank].device + cuda.Ptr(w.layout.begun()),
		Value: at(o.first, 0, 0)})
	offer := 0
	for piece := 0; ; piece++ {
		if err := w.compile(&o.call, low, piece); err != nil {
			return err
		}
		o.cut.pieces = w.program.Last + 1
		if piece == 0 && w.program.Last > 0 {
			if offer = w.offering(); offer > 0 {
				if err := w.follow(w.ahead, w.stream); err != nil {
					return err
				}
				w.known = append(w.known[:0], w.heard...)
			}
		}
		if err := w.piece(o, piece, offer); err != nil {
			return err
		}
		if piece == w.program.Last {
			break
		}
	}
	next := at(o.first+1, 0, 0)
	if c := o.call.Coll; c == dtype.AllToAll || c == dtype.Gather || c == dtype.Scatter {
		w.tell(wordOffer, next) // a peer may have more pieces
	}
	w.tell(wordSignal, next)
	w.tell(wordLeft, next)
	w.words = append(w.words, cuda.WordOp{At: w.pages[w.g.rank].device + cuda.Ptr(w.layout.ended()), Value: next})
	if err := w.flush(); err != nil {
		return err
	}
	return o.end.Record(w.stream)
}

// piece enqueues a piece of a call, the first instructions of it ahead of the rest: its offer.
func (w *windows) piece(o *Op, piece, offer int) error {
	lane := w.program.Lanes[0]
	if offer > 0 {
		if err := w.offer(func() error { return w.part(o, piece, lane[:offer], true) }); err != nil {
			return err
		}
		lane = lane[offer:]
	}
	return w.part(o, piece, lane, false)
}

// part enqueues instructions of a piece.
func (w *windows) part(o *Op, piece int, lane []program.Instruction, ahead bool) error {
	slot := int((o.first + uint64(piece)) % plan.WindowSlots)
	offered := w.program.Low.Offered
	signals := len(w.program.Low.Told) > 0 // or nobody uses the window of this rank
	for i := range lane {
		b := &lane[i]
		var err error
		switch b.Op {
		case program.OpEnter:
			if signals {
				w.enter(slot, ahead)
			}
		case program.OpSignal:
			if b.Nth >= mostSignals {
				return fault.New(fault.NotSupported, "plan %s gives too many signals", w.program.Low.Name)
			}
			word := wordSignal
			if b.Nth <= offered[w.g.rank] {
				word = wordOffer
			}
			w.tell(word, at(o.first, piece, b.Nth))
		case program.OpWait:
			w.wait(o, piece, b.Peer, b.Nth)
		case program.OpLeave:
			left := at(o.first, piece+1, 0)
			if signals {
				w.used[slot] = left
			}
			w.tell(wordLeft, left)
		default:
			err = w.emit(&o.call, b, slot)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter has the stream wait until all peers have left a slot.
func (w *windows) enter(slot int, ahead bool) {
	heard := w.heard
	if ahead {
		heard = w.known
	}
	for peer := range w.pages {
		if peer != w.g.rank && heard[peer] < w.used[slot] {
			w.await(peer, wordLeft, w.used[slot])
		}
	}
}

// wait has the stream wait for a signal of a peer. One that has come to a later piece has left this
// one. Its offers may be one piece ahead of the rest.
func (w *windows) wait(o *Op, piece, peer, nth int) {
	value := at(o.first, piece, nth)
	if nth <= w.program.Low.Offered[peer] {
		w.heard[peer] = max(w.heard[peer], at(o.first, max(piece-1, 0), 0))
		w.await(peer, wordOffer, value)
		return
	}
	w.heard[peer] = at(o.first, piece, 0)
	w.await(peer, wordSignal, value)
}

// tell has the stream write a word of this rank into the pages of all peers.
func (w *windows) tell(word int, value uint64) {
	for peer := range w.pages {
		if peer != w.g.rank {
			w.words = append(w.words, cuda.WordOp{At: w.pages[peer].device + cuda.Ptr(w.layout.of(w.g.rank, word)),
				Value: value})
		}
	}
}

// await has the stream wait for a word of a peer in the page of this rank.
func (w *windows) await(peer, word int, value uint64) {
	w.words = append(w.words, cuda.WordOp{At: w.pages[w.g.rank].device + cuda.Ptr(w.layout.of(peer, word)),
		Value: value, Wait: true})
}
