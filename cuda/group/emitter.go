package group

import (
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/kernel"
)

// emitter makes the copies and reductions of programs work of a stream. What orders them are words,
// which the user of the emitter collects.
type emitter struct {
	stream     cuda.Stream
	room       program.Room
	places     []cuda.Ptr // by rank: its slots
	scratch    cuda.Ptr   // one more slot, for reductions of many operands
	tmp        cuda.Ptr   // as many bytes for Tmp; 0 for none
	functions  map[*kernel.Function]cuda.Function
	processors int  // multiprocessors of the device
	gathers    bool // copies that follow each other are one launch
	lending

	program program.Program
	call    *exec.Call            // of the instructions that are being emitted,
	slot    int                   // and theirs
	words   []cuda.WordOp         // to be enqueued at once
	fresh   [page.WordsOfPeer]int // by word: 1 + where words has the last write of it to all peers, 0 if it has none
	sources []source
	single  [1]source
	args    kernel.Arguments
	chunks  kernel.Gather
}

// sink is what the instructions of a program become: work of a stream (windows), a part of a CUDA
// graph (graphs), or a table of steps (interpreter). An emitter has copies and reduce of all of
// them.
type sink interface {
	enter() // waits until all peers have left the slot
	signal(nth int) error
	wait(peer, nth int)
	leave() // tells the peers that this rank has left their slots
	// copies does the first of some copies that follow each other, and returns how many it has
	// done.
	copies(lane []program.Instruction) (n int, err error)
	reduce(b *program.Instruction) error
}

// emitLane gives a sink the instructions of a lane.
func emitLane(lane []program.Instruction, to sink) (err error) {
	for n := 1; len(lane) > 0 && err == nil; lane = lane[n:] {
		b := &lane[0]
		n = 1
		switch b.Op {
		case program.OpEnter:
			to.enter()
		case program.OpSignal:
			err = to.signal(b.Nth)
		case program.OpWait:
			to.wait(b.Peer, b.Nth)
		case program.OpLeave:
			to.leave()
		case program.OpDrain: // behind the last piece, by who lends
		case program.OpCopy:
			for n < len(lane) && lane[n].Op == program.OpCopy {
				n++
			}
			n, err = to.copies(lane[:n])
		case program.OpReduce:
			err = to.reduce(b)
		default:
			err = fault.New(fault.Internal, "an instruction (%d) that no device knows", b.Op)
		}
	}
	return err
}

// compile makes e.program the program of a piece of a call.
func (e *emitter) compile(call *exec.Call, low *program.Lowered, piece int) error {
	e.call = call
	p := &e.program
	if err := p.Compile(&e.room, low, call, nil, piece); err != nil {
		return err
	}
	if p.Last >= page.MostPieces || !p.Straight && !p.Messages || p.Tmp > 0 && (e.tmp == 0 || p.Tmp > e.room.Slot) {
		return fault.New(fault.NotSupported, "%v by plan %s cannot be executed by a device", call.Coll, low.Name)
	}
	return nil
}

// errSignals is for a plan whose signals no word can count.
func (e *emitter) errSignals() error {
	return fault.New(fault.NotSupported, "plan %s gives too many signals", e.program.Low.Name)
}

// flush enqueues the words that have come together.
func (e *emitter) flush() error {
	if len(e.words) == 0 {
		return nil
	}
	err := e.stream.Words(e.words)
	e.words, e.fresh = e.words[:0], [page.WordsOfPeer]int{}
	return err
}

// signals reports whether this rank signals; else nobody uses its window.
func (e *emitter) signals() bool { return len(e.program.Low.Told) > 0 }

// copies enqueues the first of some copies. Those that no other order would change are one launch.
func (e *emitter) copies(lane []program.Instruction) (n int, err error) {
	if e.chunks.Count = 0; e.gathers {
		for n < len(lane) && e.joins(&lane[n]) {
			n++
		}
	}
	if e.chunks.Count < 2 {
		return 1, e.copy(&lane[0])
	}
	bytes := 0
	for _, c := range e.chunks.Chunks[:e.chunks.Count] {
		bytes += int(c.N)
	}
	if err := e.flush(); err != nil {
		return 0, err
	}
	gather := kernel.Gathering()
	blocks := max(gather.Blocks(bytes, e.processors), int(e.chunks.Count))
	if err := e.stream.Launch(e.functions[gather.Function], blocks, kernel.BlockSize, e.chunks.Bytes()); err != nil {
		return 0, err
	}
	for i := range lane[:n] {
		e.place(&lane[i])
	}
	return n, nil
}

// joins adds what an instruction copies to the chunks that are copied together. It reports whether
// it could.
func (e *emitter) joins(b *program.Instruction) bool {
	switch {
	case b.Way == program.WayNothing:
		return true
	case e.program.Factor(b.Step) != 1:
		return false
	}
	before := e.chunks.Count
	from := e.source(&b.Src[0])
	ok := e.joinsTo(e.address(&b.Dst), from, b.Bytes) &&
		(b.Way != program.WayFused || e.joinsTo(e.address(&b.FusedCopy), from, b.Bytes))
	if !ok {
		e.chunks.Count = before
	}
	return ok
}

func (e *emitter) joinsTo(to cuda.Ptr, from source, bytes int) bool {
	return to == from.at || e.chunks.Add(kernel.Chunk{Dst: uint64(to), Src: uint64(from.at), N: uint64(bytes),
		Lent: from.lent})
}

// address returns where an operand is.
func (e *emitter) address(b *program.Operand) cuda.Ptr {
	off := cuda.Ptr(b.Off)
	switch b.Base {
	case program.BaseIn:
		return pointer(e.call.In[b.Index]) + off
	case program.BaseOut:
		return pointer(e.call.Out[b.Index]) + off
	case program.BaseTmp:
		return e.tmp + off
	case program.BasePeer:
		return e.places[b.Index] + cuda.Ptr(e.slot*e.room.Slot) + off
	}
	if p := e.loan(b.Chunk); p != 0 {
		return p
	}
	return e.places[e.room.Rank] + cuda.Ptr(e.slot*e.room.Slot) + off
}

// copy enqueues a copy, and the one that is fused with it.
func (e *emitter) copy(b *program.Instruction) (err error) {
	if b.Way == program.WayNothing {
		return nil
	}
	to, from := e.address(&b.Dst), e.source(&b.Src[0])
	if factor := e.program.Factor(b.Step); factor != 1 {
		err = e.scale(to, from, b.Bytes, factor)
	} else {
		if to != from.at {
			err = e.move(to, from, b.Bytes)
		}
		if b.Way == program.WayFused && err == nil {
			if to = e.address(&b.FusedCopy); to != from.at {
				err = e.move(to, from, b.Bytes)
			}
		}
	}
	e.place(b)
	return err
}

// move copies bytes: what may be anywhere by a kernel, which looks where it is.
func (e *emitter) move(to cuda.Ptr, from source, bytes int) error {
	if from.lent.Place != 0 {
		e.single[0] = from
		return e.launch(kernel.Copy(), to, bytes, 1, e.single[:])
	}
	if err := e.flush(); err != nil {
		return err
	}
	return e.stream.Copy(to, from.at, bytes)
}

// reduce enqueues a reduction. A kernel has a limited number of sources, so there may be several,
// of which each but the first continues with the result of the one before. So that it never
// overwrites an operand that is still to come, the operand in the caller's memory is then copied to
// the scratch before.
func (e *emitter) reduce(b *program.Instruction) error {
	if b.Way == program.WayNothing {
		return nil
	}
	err := e.combine(b)
	e.place(b)
	return err
}

func (e *emitter) combine(b *program.Instruction) error {
	to, n := e.address(&b.Dst), b.Bytes/e.call.Type.Size()
	several := len(b.Src) > kernel.MostSources
	e.sources = e.sources[:0]
	loaded := cuda.Ptr(0)
	for k := range b.Src {
		from := e.source(&b.Src[k])
		callers := b.Src[k].Base == program.BaseIn || b.Src[k].Base == program.BaseOwn &&
			from.at == to && e.loan(b.Src[k].Chunk) != 0
		if callers && (several || e.program.Pre != 1) {
			into := to
			if several {
				if into = e.scratch; loaded != 0 && loaded != from.at {
					return e.errTwice()
				}
				loaded = from.at
			}
			if err := e.load(into, from, b.Bytes); err != nil {
				return err
			}
			from.at = into
		}
		e.sources = append(e.sources, from)
	}
	sum, _ := kernel.Reduce(e.call.Type, e.call.Op)
	for left := e.sources; ; {
		most := min(len(left), kernel.MostSources)
		now := left[:most]
		if left = left[most:]; len(left) == 0 && b.Step.Final && e.program.Post != 1 {
			scaled, _ := kernel.Scale(e.call.Type)
			return e.launch(scaled, to, n, e.program.Post, now)
		}
		if err := e.launch(sum, to, n, 1, now); err != nil || len(left) == 0 {
			return err
		}
		left = e.continued(left, to)
	}
}

// continued puts the result so far in front of the sources that are left.
func (e *emitter) continued(left []source, result cuda.Ptr) []source {
	left = e.sources[len(e.sources)-len(left)-1:]
	left[0] = source{at: result}
	return left
}

// load copies an operand of the caller, multiplied by the factor that operands have.
func (e *emitter) load(to cuda.Ptr, from source, bytes int) error {
	if e.program.Pre != 1 {
		return e.scale(to, from, bytes, e.program.Pre)
	}
	return e.move(to, from, bytes)
}

func (e *emitter) scale(to cuda.Ptr, from source, bytes int, factor float64) error {
	scaled, _ := kernel.Scale(e.call.Type)
	e.single[0] = from
	return e.launch(scaled, to, bytes/e.call.Type.Size(), factor, e.single[:])
}

func (e *emitter) launch(k kernel.Call, to cuda.Ptr, n int, factor float64, from []source) error {
	if err := e.flush(); err != nil {
		return err
	}
	e.args = k.Arguments(uint64(to), n, factor)
	e.args.Count = uint32(len(from))
	for i := range from {
		e.args.Src[i] = uint64(from[i].at)
		if from[i].lent.Place != 0 {
			e.args.Lend(i, from[i].lent)
		}
	}
	return e.stream.Launch(e.functions[k.Function], k.Blocks(n, e.processors), kernel.BlockSize,
		e.args.Bytes())
}
