package exec

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/exec/blame"
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/exec/links"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// runner runs programs on this processor, one of them at a time, and those of keyed operations,
// which have frames of their own. It knows no queue and no thread. Only the driver uses it.
type runner struct {
	links    links.Set
	windows  window.Set
	programs programs
	frame    frame
	exchange exchange
	trials   Trials // nil for none
	timed    bool   // the operation in flight is a trial
	began    int64  // when its program did, or the exchange of times
	calls    blame.Calls
	blame    blame.Detector
	fence    park.Fence
	exposed  atomic.Uint64 // operations that exposed memory of the caller
}

// frame is the complete state of the operation in flight, which can stop and resume anywhere. It is
// kept from one operation to the next, so that running an operation allocates nothing.
type frame struct {
	prog        *compiled // nil: no operation is in flight
	op          *Op       // the head of the queue, or keyed; nil while Run or Post try it before it is queued
	fingerprint transport.Meta
	lanes       []laneState
	shift       int     // of the program, in the current turn
	tmp         address // the beginning of Tmp
	last        int     // number of the last piece
	longest     uint64  // elements of the longest block that peers have announced
	farthest    int     // the peer that has announced last
	moves       uint    // counts all progress

	counting bool // the lengths of blocks are being exchanged
	unrung   bool // something was published, and sleeping peers were not woken for it yet
	dynamic  bool // chunks of windows may be exposed memory, or laid out in another way than in this rank's window

	signals []uint32       // frames: signals that came and were not waited for yet, by peer and flag
	out     transport.Meta // of the fragment that is being sent; kept here because Commit takes a pointer
	memory  *mem.Block     // Tmp and, behind it, a Win that no peer reads
	size    int
	pinner  mem.Pinner // nil for none
	copied  *mem.Block // a copy of In, if the plan does not run in place
	keyed   *keyed     // the operation, if it is keyed, whose messages go another way; else nil
	operands
	exposure
}

// laneState is how far a lane has come: the instructions before at are done. Of instruction at,
// moved bytes are done; they end at offset off of chunk number chunk of its message.
type laneState struct {
	at, chunk, off, moved int
	message               *keyedMessage // of a keyed operation: of this chunk; nil if it has not begun
}

type status int

const (
	blocked status = iota // the next instruction of every lane has to wait
	finished
	refused // for a reason that all ranks find; no data has moved
	failed
)

// start begins an operation, or a piece of it. It fails if there is no memory.
func (r *runner) start(p *compiled, call *Call, seq uint64) error {
	r.frame.begin(p, seq, r.calls.History, r.windows.Begun)
	if p.simple {
		return nil
	}
	return r.prepare(p, call)
}

// begin is the part of start that every program needs; simple programs need nothing else.
func (f *frame) begin(p *compiled, seq uint64, before fingerprint.History, begun uint64) {
	f.prog, f.last, f.longest = p, p.Last, 0
	f.fingerprint[0] = p.fingerprint[0] | uint64(uint32(seq))
	f.fingerprint[1] = p.fingerprint[1]
	f.fingerprint[2] = p.fingerprint[2] ^ uint64(before.Hash())<<48
	f.shift = p.ShiftIn(begun)
	f.dynamic = p.readsUnannounced
	f.lanes = f.lanes[:1]
	f.lanes[0].at = 0 // the other fields are for messages; prepare clears them
}

// prepare is the rest of start, for programs that have several lanes, frames or Tmp, or that may
// expose memory.
func (r *runner) prepare(p *compiled, call *Call) error {
	f := &r.frame
	f.lanes = program.Resized(f.lanes, max(1, len(p.Lanes)))
	clear(f.lanes)
	if p.exposes {
		r.expose(p, call)
	}
	if p.Low.Signallers != nil {
		f.signals = program.Resized(f.signals, r.links.Size()*p.Low.Flags)
		clear(f.signals)
	}
	if p.Tmp > 0 {
		return f.allocate(p)
	}
	return nil
}

// allocate allocates memory for intermediate results.
func (f *frame) allocate(p *compiled) (err error) {
	if p.Tmp > f.size {
		f.free()
		if f.memory, err = mem.Alloc(p.Tmp); err != nil {
			return fault.Wrap(fault.System, err, "no memory for %d bytes of intermediate results", p.Tmp)
		}
		f.size = p.Tmp
		if f.pinner != nil && p.Tmp >= gatherFrom {
			_ = f.pinner.Pin(f.memory.Bytes()) // without access it is copied, and a line says so
		}
	}
	f.tmp = addressOf(f.memory.Bytes())
	return nil
}

func (f *frame) free() {
	if f.memory != nil {
		if f.pinner == nil || f.pinner.Unpin(f.memory.Bytes()) == nil {
			f.memory.Free() // otherwise an adapter may still read it, and it stays
		}
		f.memory, f.size, f.tmp = nil, 0, nil
	}
}

// mostKeptTmp is the largest number of bytes of intermediate memory that a runner keeps between
// operations.
const mostKeptTmp = 4 << 20

// finish forgets the operation.
func (f *frame) finish() {
	f.prog, f.op, f.counting = nil, nil, false
	f.exposing, f.Mask = false, 0
	if f.size > mostKeptTmp {
		f.free()
	}
	if f.copied != nil {
		f.copied.Free()
		f.copied = nil
	}
}

// meta returns the Meta of a message with the given number of bytes.
func (f *frame) meta(bytes int) transport.Meta {
	m := f.fingerprint
	if f.prog.Low.Announces {
		m[1] &^= fingerprint.Low48
		m[2] &^= fingerprint.Low48
	}
	m[1] |= uint64(bytes) & fingerprint.Low48
	return m
}

// in returns the address of an operand that is in no window, or in a window in place of which no
// memory is exposed.
func (f *frame) in(o *program.Operand, call *Call) address { return f.place(o, call, f.shift) }

// place is in with the shift of the current turn as an argument.
func (f *frame) place(o *program.Operand, call *Call, shift int) address {
	if o.At != nil {
		return plus(o.At, o.Off+shift)
	}
	if o.Base == program.BaseTmp {
		return plus(f.tmp, o.Off)
	}
	blocks := call.In
	if o.Base == program.BaseOut {
		blocks = call.Out
	}
	return plus(blocks[o.Index].Ptr, o.Off)
}

// step continues the operation in flight as far as possible without waiting.
func (r *runner) step(f *frame, call *Call) (status, error) {
	for {
		p := f.prog
		var s status
		var err error
		if p.Straight {
			s, err = r.runLane(f, p, p.Lanes[0], &f.lanes[0], uint(f.lanes[0].at), call, nil)
		} else {
			s, err = r.runLanes(f, call)
		}
		if s != finished {
			return s, err
		}
		if p.Piece == f.last && !f.counting {
			r.made(p)
			return finished, nil
		}
		if f.counting {
			s, err = r.counted(f)
			call = &f.op.call
		} else {
			s, err = failed, r.nextPiece(f, call)
		}
		if err != nil {
			return s, err
		}
	}
}

// nextPiece begins the next piece of the operation.
func (r *runner) nextPiece(f *frame, call *Call) error {
	if err := f.plausible(); err != nil {
		return err
	}
	p, last := &r.programs.scratch, f.last
	if err := r.programs.compile(p, f.prog.Low, call, &r.exchange.Lengths, f.prog.Piece+1); err != nil {
		return err
	}
	err := r.start(p, call, uint64(uint32(f.fingerprint[0])))
	f.last = max(f.last, last)
	return err
}

// runLanes advances every lane as far as possible.
func (r *runner) runLanes(f *frame, call *Call) (status, error) {
	for {
		before := f.moves
		if f.prog.Low.Signallers != nil {
			if err := r.inbound(f.prog.Low.Signallers); err != nil {
				return failed, err
			}
		}
		all := finished
		for lane := range f.prog.Lanes {
			s, err := r.runLane(f, f.prog, f.prog.Lanes[lane], &f.lanes[lane], uint(f.lanes[lane].at), call, nil)
			if s == failed {
				return failed, err
			}
			all = min(all, s)
		}
		if all == finished || f.moves == before {
			return all, nil
		}
	}
}

// runLane is the interpreter. If there is a waiter w, the interpreter waits for signals and slots
// itself, without sleeping.
//
// Ranks wait for each other, so any time spent here between two waits counts twice. That is why the
// most common instructions are executed without another call, and why the words of the fingerprint
// are copied one by one: a word that was just written must not be read back as part of a longer
// load, which would have to wait for the store.
func (r *runner) runLane(
	f *frame, p *compiled, steps []program.Instruction, st *laneState, i uint, call *Call, w *waiter,
) (status, error) {
	win := &r.windows
	turn := win.Turn()
	shift, unrung := f.shift, f.unrung
loop:
	for ; i < uint(len(steps)); i++ {
		b := &steps[i]
		if b.Gated && f.closed(b.Gates) {
			break
		}
		var done bool
		var err error
		switch b.Op {
		case program.OpSignal:
			n := win.Own(turn)
			if b.First {
				n.Call[0], n.Call[1], n.Call[2] = f.fingerprint[0], f.fingerprint[1], f.fingerprint[2]
				if b.Extended && (p.Strict || n.MayExpose(&f.Exposure)) {
					r.announceMore(n, call)
				}
			}
			n.Publish(win.Word(b.Nth))
			if b.First && p.Step > 0 && kernel.Claims() && !park.Shares() {
				r.claimNext(p)
			}
			if unrung = true; b.Rings {
				unrung = false
				r.ring()
			}
			continue
		case program.OpWait:
			from := win.Rank(b.Peer)
			n := from.Record(turn)
			if n.Word() < win.Word(b.Nth) {
				f.unrung = unrung
				if w == nil || !r.listen(f, b, call, w) {
					break loop
				}
				unrung = f.unrung
			}
			from.Entered(win.Begun)
			if !b.First || !p.Strict && !n.Differs(&f.fingerprint, b.Extended) {
				continue
			}
			done, err = true, r.examine(f, b.Peer, n, call)
		case program.OpCopy:
			if b.Way == program.WayNothing {
				continue
			}
			if f.dynamic {
				done, err = true, r.copy(f, b, call)
				break
			}
			dst, src := f.place(&b.Dst, call, shift), f.place(&b.Src[0], call, shift)
			switch b.Way {
			case program.Way4:
				*(*[4]byte)(dst) = *(*[4]byte)(src)
			case program.Way8:
				*(*[8]byte)(dst) = *(*[8]byte)(src)
			case program.Way16:
				*(*[16]byte)(dst) = *(*[16]byte)(src)
			default:
				f.copyLong(b, dst, src, call)
			}
			continue
		case program.OpReduce:
			if b.Way == program.WayNothing {
				continue
			}
			if b.Way == program.WayOfTwo && !f.dynamic {
				p.kern(f.place(&b.Dst, call, shift),
					f.place(&b.Src[0], call, shift), f.place(&b.Src[1], call, shift), b.Elems)
				continue
			}
			done, err = true, r.reduce(f, b, call)
		case program.OpEnter:
			if win.FirstBehind(p.Depth) >= 0 && (w == nil || !r.entered(f, call, w)) {
				break loop
			}
			continue
		case program.OpLeave:
			r.leaveSlot()
			unrung = false // leaveSlot wakes the peers
			continue
		case program.OpSend:
			done = r.send(f, b, f.at(st, int(i)), call)
		case program.OpRecv:
			done, err = r.receive(f, b, f.at(st, int(i)), call)
		case program.OpPut:
			done = r.put(f, b, f.at(st, int(i)), call)
		case program.OpTake:
			f.at(st, int(i))
			done, err = r.takeSignal(f, b)
		case program.OpDrain:
			f.at(st, int(i))
			done = r.drain(f)
		}
		if err != nil {
			return failed, err
		}
		if !done {
			break
		}
	}
	f.unrung = unrung
	if i < uint(len(steps)) {
		f.at(st, int(i))
		return blocked, nil
	}
	if st.at != len(steps) {
		st.at = len(steps)
		f.moves++
	}
	return finished, nil
}

// drain reports whether all peers have finished reading the memory that this rank exposes.
func (r *runner) drain(f *frame) bool {
	if f.exposing && f.prog.Piece == f.last {
		if r.windows.FirstBehind(1) >= 0 {
			return false
		}
		r.exposed.Add(1)
	}
	return true
}

// at moves a lane to instruction i.
func (f *frame) at(st *laneState, i int) *laneState {
	if st.at != i {
		*st = laneState{at: i}
		f.moves++
	}
	return st
}

// closed reports whether gates hold an instruction back. It is kept out of the interpreter, whose
// code must stay short: programs of one lane have no gates.
//
//go:noinline
func (f *frame) closed(gates []program.Gate) bool { return f.limit(gates) == 0 }

// copyLong performs a copy that is longer than a number, or multiplied, or fused with the step's
// FusedCopy.
//
//go:noinline
func (f *frame) copyLong(b *program.Instruction, dst, src address, call *Call) {
	if p := f.prog; b.Way == program.WayFused {
		p.copyTwice(b.Step, dst, f.in(&b.FusedCopy, call), src, b.Bytes)
	} else {
		p.copy(b.Step, dst, src, b.Bytes)
	}
}

// limit returns how many bytes gates let through: 0 if the instruction has to wait, otherwise the
// number of bytes that it may have moved in all. If all gates are open, or there are none, this is
// program.MaxBytes.
func (f *frame) limit(gates []program.Gate) int {
	limit := program.MaxBytes
	for _, g := range gates {
		st, steps := &f.lanes[g.Lane], f.prog.Lanes[g.Lane]
		switch {
		case st.at == len(steps) || steps[st.at].PC > g.Step:
		case steps[st.at].PC == g.Step && g.Pipelined && st.moved > 0:
			limit = min(limit, st.moved)
		default:
			return 0
		}
	}
	return limit
}

// waitsAt returns the instruction that a lane waits at. It is nil if the lane has finished or waits
// for another lane.
func (f *frame) waitsAt(lane int) *program.Instruction {
	at, steps := f.lanes[lane].at, f.prog.Lanes[lane]
	if at == len(steps) || f.limit(steps[at].Gates) == 0 {
		return nil
	}
	return &steps[at]
}

// entering reports whether the operation waits until its slot is free.
func (f *frame) entering() bool {
	b := f.waitsAt(0)
	return b != nil && b.Op == program.OpEnter
}

// draining reports whether the operation only waits for peers that still read memory that this rank
// exposes.
func (f *frame) draining() bool {
	b := f.waitsAt(len(f.lanes) - 1)
	return b != nil && b.Op == program.OpDrain
}

// copy performs one chunk of a copy or get whose places depend on what ranks expose. Memory that
// this rank exposes in place of its window is copied onto itself, which does nothing.
func (r *runner) copy(f *frame, b *program.Instruction, call *Call) error {
	dst, err := r.locate(f, &b.Dst, call, b.Bytes)
	if err != nil {
		return err
	}
	src, err := r.locate(f, &b.Src[0], call, b.Bytes)
	if err != nil {
		return err
	}
	if b.Way == program.WayFused && dst == src {
		f.prog.copy(b.Step.FusedCopy, f.in(&b.FusedCopy, call), src, b.Bytes)
	} else {
		f.copyLong(b, dst, src, call)
	}
	return nil
}

// reduce combines one chunk of all sources.
func (r *runner) reduce(f *frame, b *program.Instruction, call *Call) error {
	dst, err := r.locate(f, &b.Dst, call, b.Bytes)
	if err != nil {
		return err
	}
	o := &f.operands
	o.sources = o.sources[:0]
	for k := range b.Src {
		src, err := r.locate(f, &b.Src[k], call, b.Bytes)
		if err != nil {
			return err
		}
		o.sources = append(o.sources, src)
	}
	if p := f.prog; len(o.sources) == 2 && p.Pre == 1 {
		p.pair(b.Step, dst, o.sources[0], o.sources[1], b.Elems)
	} else {
		p.many(b.Step, dst, o, b.Bytes)
	}
	return nil
}

// locate returns the address of an operand of the given number of bytes. It takes into account the
// memory that ranks expose in place of their windows, and the layouts of the peers' windows.
func (r *runner) locate(f *frame, o *program.Operand, call *Call, bytes int) (address, error) {
	if f.dynamic {
		switch o.Base {
		case program.BaseOwn:
			if f.Mask>>o.Chunk&1 != 0 {
				return f.exposed[o.Chunk], nil
			}
		case program.BasePeer:
			return r.locatePeer(f, o, bytes)
		}
	}
	return f.in(o, call), nil
}

// locatePeer returns the address of a chunk of a peer's window.
func (r *runner) locatePeer(f *frame, o *program.Operand, bytes int) (address, error) {
	peer, i, low := int(o.Index), int(o.Chunk), f.prog.Low
	if low.Exposes {
		if at, exposed, ok := r.windows.Exposed(peer, i, bytes); !ok {
			return nil, r.outOfRange(peer)
		} else if exposed {
			return at, nil
		}
	}
	inline, n := f.prog.Inline, r.windows.Record(peer)
	if low.Announces {
		inline = low.InlineChunk(n.Call[2]&fingerprint.Low48, f.prog.Unit)
	}
	if inline > 0 {
		return address(&n.Inline[i*inline]), nil
	}
	return plus(r.windows.SlotOf(peer), i*f.prog.Cell+f.prog.Moved(r.windows.Begun)), nil
}

// planChannel returns the channel for the messages of a step.
func (r *runner) planChannel(s *program.Step) transport.Channel {
	return r.links.Channel(s.Peer, ownChannels+s.Channel)
}

// flush wakes sleeping peers so that they see what this rank has published.
func (r *runner) flush() {
	if r.frame.unrung {
		r.frame.unrung = false
		r.ring()
	}
}

// aheadPauses is the number of pauses that a rank makes before its next check if it is as far ahead
// of another rank as records allow. It loses nothing by waiting, and each check takes away the
// cache line that the other rank writes in every operation.
const aheadPauses = 8

// entered waits, without sleeping, until the memory whose turn it is may be used, and reports
// whether it may. The caller has found that it was not free.
func (r *runner) entered(f *frame, call *Call, w *waiter) bool {
	depth := f.prog.Depth
	w.noteNow(call)
	if depth == plan.WindowRecords {
		park.Pause(aheadPauses)
	}
	return w.awake(func() bool { return r.windows.FirstBehind(depth) < 0 })
}

// listen waits, without sleeping, for a signal that had not come yet, and reports whether it came.
func (r *runner) listen(f *frame, b *program.Instruction, call *Call, w *waiter) bool {
	win := &r.windows
	if w.noteNow(call) && win.Heard(b.Peer, b.Nth) {
		return true
	}
	for f.prog.short && win.MaySpin(r.links.Rank, b.Peer) {
		if !w.pace.Spin() {
			win.SpunInVain()
			break
		}
		if win.Heard(b.Peer, b.Nth) {
			w.pace.Reset()
			return true
		}
	}
	return w.awake(func() bool { return win.Heard(b.Peer, b.Nth) })
}
