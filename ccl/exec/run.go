package exec

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// frame is all the state of the operation under way, which can stop and go on anywhere. It is kept
// from one operation to the next, so that running one allocates nothing.
type frame struct {
	prog        *program // nil: no operation is under way
	op          *Op      // the head of the queue; nil while Run or Post try the operation before it is queued
	fingerprint transport.Meta
	lanes       []laneState
	shift       int     // of the program, in this turn
	tmp         address // where Tmp begins
	last        int     // the last piece
	moves       uint    // counts whatever goes on

	counting bool // the lengths of blocks are being exchanged
	unrung   bool // something was published, and no sleeping peer was woken for it
	dynamic  bool // some chunks of windows lie elsewhere than in the windows, or are laid out in another way than this rank's

	signals []uint32       // frames: counted and not waited for, by peer and flag
	out     transport.Meta // of the fragment that is being sent; here, because Commit takes a pointer
	memory  *mem.Block     // Tmp, and behind it a Win that no peer reads
	size    int
	copied  *mem.Block // of In, where the plan does not run in place
	operands
	exposure
	asking
}

// laneState is how far a lane has come: instructions before at are done, of this one `moved` bytes
// are, which end at offset off of chunk number chunk of its message.
type laneState struct {
	at, chunk, off, moved int
}

type status int

const (
	blocked status = iota // the next instruction of every lane has to wait
	finished
	refused // for a reason that all ranks find alike; nothing has moved
	failed
)

// start begins an operation, or a piece of it. It fails where there is no memory.
func (c *Comm) start(p *program, call *Call, seq uint64) error {
	c.frame.begin(p, seq, c.history, c.windows.Begun)
	if p.simple {
		return nil
	}
	return c.prepare(p, call)
}

// begin is all that most programs need.
func (f *frame) begin(p *program, seq uint64, before history, begun uint64) {
	f.prog, f.last = p, p.last
	f.fingerprint[0] = p.fingerprint[0] | uint64(uint32(seq))
	f.fingerprint[1] = p.fingerprint[1]
	f.fingerprint[2] = p.fingerprint[2] ^ uint64(before.hash())<<48
	f.shift = p.shift[begun%plan.WindowNotices]
	f.dynamic = p.readsUnannounced
	f.lanes = f.lanes[:1]
	f.lanes[0].at = 0 // the rest is of messages, which prepare has cleared
}

// prepare is what programs of several lanes, of frames, with Tmp, or that may expose memory need
// besides.
func (c *Comm) prepare(p *program, call *Call) error {
	f := &c.frame
	f.lanes = resized(f.lanes, max(1, len(p.lanes)))
	clear(f.lanes)
	if p.exposes {
		c.expose(p, call)
	}
	if p.low.signallers != nil {
		f.signals = resized(f.signals, c.size*p.low.flags)
		clear(f.signals)
	}
	if p.tmp > 0 {
		return f.allocate(p)
	}
	return nil
}

// allocate makes room for intermediate results.
func (f *frame) allocate(p *program) (err error) {
	if p.tmp > f.size {
		f.free()
		if f.memory, err = mem.Alloc(p.tmp); err != nil {
			return fault.Wrap(fault.System, err, "no memory for %d bytes of intermediate results", p.tmp)
		}
		f.size = p.tmp
	}
	f.tmp = addressOf(f.memory.Bytes())
	return nil
}

func (f *frame) free() {
	if f.memory != nil {
		f.memory.Free()
		f.memory, f.size, f.tmp = nil, 0, nil
	}
}

// mostKeptTmp is how much intermediate memory a Comm keeps between operations.
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

// meta is what a message of so many bytes carries.
func (f *frame) meta(bytes int) transport.Meta {
	m := f.fingerprint
	if f.prog.low.announces {
		m[1] &^= low48
		m[2] &^= low48
	}
	m[1] |= uint64(bytes) & low48
	return m
}

// step goes on with the operation under way as far as it can without waiting.
func (c *Comm) step(f *frame, call *Call) (status, error) {
	for {
		p := f.prog
		var s status
		var err error
		if p.straight {
			s, err = c.runLane(f, p, p.lanes[0], &f.lanes[0], uint(f.lanes[0].at), call, nil)
		} else {
			s, err = c.runLanes(f, call)
		}
		if s != finished {
			return s, err
		}
		if p.piece == f.last && !f.counting {
			c.history.add(p.digest)
			return finished, nil
		}
		if f.counting {
			s, err = c.counted(f)
			call = &f.op.call
		} else {
			s, err = failed, c.nextPiece(f, call)
		}
		if err != nil {
			return s, err
		}
	}
}

// nextPiece begins the next piece of the operation.
func (c *Comm) nextPiece(f *frame, call *Call) error {
	p, last := &c.cache.scratch, f.last
	if err := c.compile(p, f.prog.low, call, f.prog.piece+1); err != nil {
		return err
	}
	err := c.start(p, call, uint64(uint32(f.fingerprint[0])))
	f.last = max(f.last, last)
	return err
}

// runLanes moves every lane as far as it goes.
func (c *Comm) runLanes(f *frame, call *Call) (status, error) {
	for {
		before := f.moves
		if f.prog.low.signallers != nil {
			if err := c.inbound(f.prog.low.signallers); err != nil {
				return failed, err
			}
		}
		all := finished
		for lane := range f.prog.lanes {
			s, err := c.runLane(f, f.prog, f.prog.lanes[lane], &f.lanes[lane], uint(f.lanes[lane].at), call, nil)
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

// runLane is the interpreter. Ranks wait for each other, so whatever is done here between two waits
// counts twice; that is why the commonest instructions are done without another call, and the words
// of said are stored one by one: one that was just written is not read back as part of something
// longer, which would wait for the store.
func (c *Comm) runLane(f *frame, p *program, steps []instr, st *laneState, i uint, call *Call, w *waiter) (status, error) {
	win := &c.windows
	turn := win.Turn()
	shift, unrung := p.shift[turn], f.unrung
loop:
	for ; i < uint(len(steps)); i++ {
		b := &steps[i]
		if b.gated && f.closed(b.gates) {
			break
		}
		var done bool
		var err error
		switch b.op {
		case opSignal:
			n := win.Own(turn)
			if b.first {
				n.Call[0], n.Call[1], n.Call[2] = f.fingerprint[0], f.fingerprint[1], f.fingerprint[2]
				if b.extended && (p.strict || n.MayExpose(&f.Exposure)) {
					c.announceMore(n, call)
				}
			}
			n.Publish(win.Word(b.nth))
			unrung = true
			continue
		case opWait:
			from := win.Rank(b.peer)
			n := from.Record(turn)
			if n.Word() < win.Word(b.nth) {
				f.unrung = unrung
				if w == nil || !c.listen(f, b, w) {
					break loop
				}
				unrung = f.unrung
			}
			from.Entered(win.Begun)
			if !b.first || !p.strict && !n.Differs(&f.fingerprint, b.extended) {
				continue
			}
			done, err = true, c.examine(f, b.peer, n, call)
		case opCopy:
			if b.way == wayNothing {
				continue
			}
			if f.dynamic {
				done, err = true, c.copy(f, b, call)
				break
			}
			dst, src := b.dst.place(f, call, shift), b.src[0].place(f, call, shift)
			switch b.way {
			case way4:
				*(*[4]byte)(dst) = *(*[4]byte)(src)
			case way8:
				*(*[8]byte)(dst) = *(*[8]byte)(src)
			case way16:
				*(*[16]byte)(dst) = *(*[16]byte)(src)
			default:
				f.copyLong(b, dst, src, call)
			}
			continue
		case opReduce:
			if b.way == wayNothing {
				continue
			}
			if b.way == wayOfTwo && !f.dynamic {
				p.kern(b.dst.place(f, call, shift), b.src[0].place(f, call, shift), b.src[1].place(f, call, shift), b.elems)
				continue
			}
			done, err = true, c.reduce(f, b, call)
		case opEnter:
			if win.FirstBehind(p.depth) >= 0 && (w == nil || !c.entered(f, w)) {
				break loop
			}
			continue
		case opLeave:
			c.leaveSlot(&f.fingerprint)
			unrung = false // who leaves rings
			continue
		case opSend:
			done = c.send(f, b, f.at(st, int(i)), call)
		case opRecv:
			done, err = c.receive(f, b, f.at(st, int(i)), call)
		case opPut:
			done = c.put(f, b, f.at(st, int(i)), call)
		case opTake:
			f.at(st, int(i))
			done, err = c.takeSignal(f, b)
		case opDrain:
			f.at(st, int(i))
			done = c.drain(f)
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

// drain reports whether no peer reads memory any more that this rank exposes.
func (c *Comm) drain(f *frame) bool {
	if f.exposing && f.prog.piece == f.last {
		if c.windows.FirstBehind(1) >= 0 {
			return false
		}
		c.exposed.Add(1)
	}
	return true
}

// at makes a lane stand at instruction i.
func (f *frame) at(st *laneState, i int) *laneState {
	if st.at != i {
		*st = laneState{at: i}
		f.moves++
	}
	return st
}

// closed reports whether gates hold an instruction back. It stays out of the interpreter, whose
// code is to be short: programs of one lane have no gates.
//
//go:noinline
func (f *frame) closed(gates []gate) bool { return f.limit(gates) == 0 }

// copyLong copies what is longer than a number, or is multiplied, by an instruction and its
// fusedCopy.
//
//go:noinline
func (f *frame) copyLong(b *instr, dst, src address, call *Call) {
	if a := &f.prog.arithmetic; b.way == wayFused {
		a.copyTwice(b.step, dst, b.fusedCopy.in(f, call), src, b.bytes)
	} else {
		a.copy(b.step, dst, src, b.bytes)
	}
}

// limit is how many bytes gates let through: 0 when the instruction has to wait, else a count that
// it may reach. An open gate, or none, gives maxBytes.
func (f *frame) limit(gates []gate) int {
	limit := maxBytes
	for _, g := range gates {
		st, steps := &f.lanes[g.lane], f.prog.lanes[g.lane]
		switch {
		case st.at == len(steps) || steps[st.at].pc > g.step:
		case steps[st.at].pc == g.step && g.pipelined && st.moved > 0:
			limit = min(limit, st.moved)
		default:
			return 0
		}
	}
	return limit
}

// waitsAt is the instruction that a lane waits at, nil if it has finished or waits for another
// lane.
func (f *frame) waitsAt(lane int) *instr {
	at, steps := f.lanes[lane].at, f.prog.lanes[lane]
	if at == len(steps) || f.limit(steps[at].gates) == 0 {
		return nil
	}
	return &steps[at]
}

// entering reports whether the slot of the operation is not free yet.
func (f *frame) entering() bool {
	b := f.waitsAt(0)
	return b != nil && b.op == opEnter
}

// draining reports whether the operation is done but for peers that still read what this rank
// exposes.
func (f *frame) draining() bool {
	b := f.waitsAt(len(f.lanes) - 1)
	return b != nil && b.op == opDrain
}

// copy does one chunk of a copy or get. Memory that this rank exposes in place of its window is
// copied onto itself, which is nothing.
func (c *Comm) copy(f *frame, b *instr, call *Call) error {
	dst, err := c.locate(f, &b.dst, call, b.bytes)
	if err != nil {
		return err
	}
	src, err := c.locate(f, &b.src[0], call, b.bytes)
	if err != nil {
		return err
	}
	if b.way == wayFused && dst == src {
		f.prog.copy(b.step.fusedCopy, b.fusedCopy.in(f, call), src, b.bytes)
	} else {
		f.copyLong(b, dst, src, call)
	}
	return nil
}

// reduce combines one chunk of all sources.
func (c *Comm) reduce(f *frame, b *instr, call *Call) error {
	dst, err := c.locate(f, &b.dst, call, b.bytes)
	if err != nil {
		return err
	}
	o := &f.operands
	o.sources = o.sources[:0]
	for k := range b.src {
		src, err := c.locate(f, &b.src[k], call, b.bytes)
		if err != nil {
			return err
		}
		o.sources = append(o.sources, src)
	}
	if a := &f.prog.arithmetic; len(o.sources) == 2 && a.pre == 1 {
		a.pair(b.step, dst, o.sources[0], o.sources[1], b.elems)
	} else {
		a.many(b.step, dst, o, b.bytes)
	}
	return nil
}

// locate is where an operand of so many bytes lies, whoever exposes memory in place of a window,
// and however the windows of peers are laid out.
func (c *Comm) locate(f *frame, o *operand, call *Call, bytes int) (address, error) {
	if f.dynamic {
		switch o.base {
		case baseOwn:
			if f.Mask>>o.chunk&1 != 0 {
				return f.exposed[o.chunk], nil
			}
		case basePeer:
			return c.locatePeer(f, o, bytes)
		}
	}
	return o.in(f, call), nil
}

// locatePeer is where a chunk of a peer's window lies.
func (c *Comm) locatePeer(f *frame, o *operand, bytes int) (address, error) {
	peer, i, low := int(o.index), int(o.chunk), f.prog.low
	if low.exposes {
		if at, exposed, ok := c.windows.Exposed(peer, i, bytes); !ok {
			return nil, c.outOfRange(peer)
		} else if exposed {
			return at, nil
		}
	}
	inline, n := f.prog.inline, c.windows.Record(peer)
	if low.announces {
		inline = low.inline(n.Call[2]&low48, f.prog.unit)
	}
	if inline > 0 {
		return address(&n.Inline[i*inline]), nil
	}
	return plus(c.windows.SlotOf(peer), i*f.prog.cell), nil
}

// flush wakes the peers that sleep and should see what was published.
func (c *Comm) flush() {
	if c.frame.unrung {
		c.frame.unrung = false
		c.ring()
	}
}

// aheadPauses are those of a rank that is as far ahead of another one as records let it, before it
// looks again: it has nothing to lose, and each look takes the line away that the other one writes
// in every operation.
const aheadPauses = 8

// entered waits awake until the memory whose turn it is may be used, and reports whether it may. It
// was not free just now.
func (c *Comm) entered(f *frame, w *waiter) bool {
	depth := f.prog.depth
	if depth == plan.WindowNotices {
		park.Pause(aheadPauses)
	}
	return c.awake(w, func() bool { return c.windows.FirstBehind(depth) < 0 })
}

// listen waits awake for a signal that was not there yet, and reports whether it came.
func (c *Comm) listen(f *frame, b *instr, w *waiter) bool {
	win := &c.windows
	for f.prog.short && win.MaySpin(c.rank, b.peer) {
		if !w.pace.Spin() {
			win.SpunInVain()
			break
		}
		if win.Heard(b.peer, b.nth) {
			w.pace.Reset()
			return true
		}
	}
	return c.awake(w, func() bool { return win.Heard(b.peer, b.nth) })
}
