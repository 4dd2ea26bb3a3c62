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
	"github.com/goccl/goccl/cuda/kernel"
)

// windows is the way of collectives through memory that the devices of all ranks reach. The program
// of a call (package program) becomes work of one stream: copies, kernels and words.
type windows struct {
	g       *Group
	layout  layout
	room    program.Room
	page    cuda.Registered // of this rank
	places  []cuda.Ptr      // of the windows, by rank; behind the slots of each is the scratch
	pages   []page          // by rank
	giving  []func() error  // gives back, last first, what was opened
	owned   int             // the first of these: what is not of the peers
	left    bool            // this rank uses nothing of the others any more; guarded by Thread.sharing
	opening *opening        // nil when the ranks have agreed
	stream  cuda.Stream

	functions  map[*kernel.Function]cuda.Function
	processors int // multiprocessors of the device

	// Used only by Enqueue.
	lows    map[choice]*program.Lowered
	program program.Program
	words   []cuda.WordOp // to be enqueued at once
	sources []uint64
	single  [1]uint64
	args    kernel.Arguments
	op      uint64                   // operations so far
	used    [plan.WindowSlots]uint64 // by slot: where the peers are when they have left it
	heard   []uint64                 // by peer: its last signal that the stream waits for

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
	for piece := 0; ; piece++ {
		if err := w.compile(o, low, piece); err != nil {
			return err
		}
		if err := w.piece(o, piece); err != nil {
			return err
		}
		if piece == w.program.Last {
			break
		}
	}
	next := at(o.first+1, 0, 0)
	w.tell(wordSignal, next)
	w.tell(wordLeft, next)
	w.words = append(w.words, cuda.WordOp{At: w.pages[w.g.rank].device + cuda.Ptr(w.layout.ended()), Value: next})
	if err := w.flush(); err != nil {
		return err
	}
	return o.end.Record(w.stream)
}

// compile makes w.program the program of a piece.
func (w *windows) compile(o *Op, low *program.Lowered, piece int) error {
	p := &w.program
	if err := p.Compile(&w.room, low, &o.call, nil, piece); err != nil {
		return err
	}
	o.cut.pieces = p.Last + 1
	if p.Last >= mostPieces || !p.Straight || p.Tmp > 0 {
		return fault.New(fault.NotSupported, "%v by plan %s cannot be executed by a device", o.call.Coll, low.Name)
	}
	return nil
}

// piece enqueues a piece of a call.
func (w *windows) piece(o *Op, piece int) error {
	slot := int((o.first + uint64(piece)) % plan.WindowSlots)
	lane := w.program.Lanes[0]
	for i := range lane {
		b := &lane[i]
		var err error
		switch b.Op {
		case program.OpEnter:
			for peer := range w.pages {
				// A peer that has come to a later piece has left this one.
				if peer != w.g.rank && w.heard[peer]&^(mostSignals-1) < w.used[slot] {
					w.await(peer, wordLeft, w.used[slot])
				}
			}
		case program.OpSignal:
			if b.Nth >= mostSignals {
				return fault.New(fault.NotSupported, "plan %s gives too many signals", w.program.Low.Name)
			}
			w.tell(wordSignal, at(o.first, piece, b.Nth))
		case program.OpWait:
			w.heard[b.Peer] = at(o.first, piece, b.Nth)
			w.await(b.Peer, wordSignal, w.heard[b.Peer])
		case program.OpCopy:
			err = w.copy(o, b, slot)
		case program.OpReduce:
			err = w.reduce(o, b, slot)
		case program.OpLeave:
			w.used[slot] = at(o.first, piece+1, 0)
			w.tell(wordLeft, w.used[slot])
		default:
			err = fault.New(fault.Internal, "an instruction (%d) of plan %s that no device knows", b.Op, w.program.Low.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
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

// flush enqueues the words that have come together.
func (w *windows) flush() error {
	if len(w.words) == 0 {
		return nil
	}
	err := w.stream.Words(w.words)
	w.words = w.words[:0]
	return err
}

// address returns where an operand is.
func (w *windows) address(o *Op, b *program.Operand, slot int) cuda.Ptr {
	off := cuda.Ptr(b.Off)
	switch b.Base {
	case program.BaseIn:
		return pointer(o.call.In[b.Index]) + off
	case program.BaseOut:
		return pointer(o.call.Out[b.Index]) + off
	case program.BasePeer:
		return w.places[b.Index] + cuda.Ptr(slot*w.room.Slot) + off
	}
	return w.places[w.g.rank] + cuda.Ptr(slot*w.room.Slot) + off
}

// copy enqueues a copy, and the one that is fused with it.
func (w *windows) copy(o *Op, b *program.Instruction, slot int) error {
	if b.Way == program.WayNothing {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	factor := w.program.Factor(b.Step)
	to, from := w.address(o, &b.Dst, slot), w.address(o, &b.Src[0], slot)
	switch {
	case factor != 1:
		return w.scale(o, to, from, b.Bytes, factor)
	case to != from:
		if err := w.stream.Copy(to, from, b.Bytes); err != nil {
			return err
		}
	}
	if b.Way != program.WayFused {
		return nil
	}
	if to = w.address(o, &b.FusedCopy, slot); to == from {
		return nil
	}
	return w.stream.Copy(to, from, b.Bytes)
}

// reduce enqueues a reduction. A kernel has a limited number of sources, so there may be several,
// of which each but the first continues with the result of the one before. So that it never
// overwrites an operand that is still to come, the operand in the caller's memory is then copied to
// the scratch before.
func (w *windows) reduce(o *Op, b *program.Instruction, slot int) error {
	if b.Way == program.WayNothing {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	to, n := w.address(o, &b.Dst, slot), b.Bytes/o.call.Type.Size()
	several := len(b.Src) > kernel.MostSources
	w.sources = w.sources[:0]
	for k := range b.Src {
		from := w.address(o, &b.Src[k], slot)
		if b.Src[k].Base == program.BaseIn && (several || w.program.Pre != 1) {
			into := to
			if several {
				into = w.scratch()
			}
			if err := w.load(o, into, from, b.Bytes); err != nil {
				return err
			}
			from = into
		}
		w.sources = append(w.sources, uint64(from))
	}
	sum, _ := kernel.Reduce(o.call.Type, o.call.Op)
	for left := w.sources; ; {
		most := min(len(left), kernel.MostSources)
		now := left[:most]
		if left = left[most:]; len(left) == 0 && b.Step.Final && w.program.Post != 1 {
			scaled, _ := kernel.Scale(o.call.Type)
			return w.launch(scaled, to, n, w.program.Post, now)
		}
		if err := w.launch(sum, to, n, 1, now); err != nil || len(left) == 0 {
			return err
		}
		left = w.continued(left, to)
	}
}

// continued puts the result so far in front of the sources that are left.
func (w *windows) continued(left []uint64, result cuda.Ptr) []uint64 {
	left = w.sources[len(w.sources)-len(left)-1:]
	left[0] = uint64(result)
	return left
}

// load copies an operand of the caller, multiplied by the factor that operands have.
func (w *windows) load(o *Op, to, from cuda.Ptr, bytes int) error {
	if w.program.Pre != 1 {
		return w.scale(o, to, from, bytes, w.program.Pre)
	}
	return w.stream.Copy(to, from, bytes)
}

// scratch is behind the slots of the window.
func (w *windows) scratch() cuda.Ptr {
	return w.places[w.g.rank] + cuda.Ptr(plan.WindowSlots*w.room.Slot)
}

func (w *windows) scale(o *Op, to, from cuda.Ptr, bytes int, factor float64) error {
	scaled, _ := kernel.Scale(o.call.Type)
	w.single[0] = uint64(from)
	return w.launch(scaled, to, bytes/o.call.Type.Size(), factor, w.single[:])
}

func (w *windows) launch(call kernel.Call, to cuda.Ptr, n int, factor float64, from []uint64) error {
	w.args = call.Arguments(uint64(to), n, factor, from...)
	return w.stream.Launch(w.functions[call.Function], call.Blocks(n, w.processors), kernel.BlockSize,
		w.args.Bytes())
}
