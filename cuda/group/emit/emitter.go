// Package emit makes what devices execute of the programs of calls: one loop goes through the
// instructions, and what becomes of them is said by a Sink.
package emit

import (
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/kernel"
)

// Emitter makes the copies and reductions of programs work of a stream. What orders them are words,
// which the user of the Emitter collects.
type Emitter struct {
	Stream     cuda.Stream
	Room       program.Room
	Places     []cuda.Ptr // by rank: its slots
	Scratch    cuda.Ptr   // one more slot, for reductions of many operands
	Tmp        cuda.Ptr   // as many bytes for Tmp; 0 for none
	Functions  map[*kernel.Function]cuda.Function
	Processors int  // multiprocessors of the device
	Gathers    bool // copies that follow each other are one launch
	Lending

	Program *program.Program
	Call    *exec.Call            // of the instructions that are being emitted,
	Slot    int                   // and theirs
	Words   []cuda.WordOp         // to be enqueued at once
	Fresh   [page.WordsOfPeer]int // by word: 1 + where words has the last write of it to all peers, 0 if it has none
	sources []source
	single  [1]source
	args    kernel.Arguments
	chunks  kernel.Gather
}

// Sink is what the instructions of a program become: work of a stream (windows), a part of a CUDA
// graph (graphs), or a table of steps (interpreter). An emitter has copies and reduce of all of
// them.
type Sink interface {
	Enter() // waits until all peers have left the slot
	Signal(nth int)
	Wait(peer, nth int)
	Leave() // tells the peers that this rank has left their slots
	// Copies does the first of some copies that follow each other, and returns how many.
	Copies(lane []program.Instruction) (n int, err error)
	Reduce(b *program.Instruction) error
}

// Emit gives a sink the instructions of a lane.
func (e *Emitter) Emit(lane []program.Instruction, to Sink) (err error) {
	for n := 1; len(lane) > 0 && err == nil; lane = lane[n:] {
		b := &lane[0]
		n = 1
		switch b.Op {
		case program.OpEnter:
			to.Enter()
		case program.OpSignal:
			if b.Nth >= page.MostSignals {
				return fault.New(fault.NotSupported, "plan %s gives too many signals", e.Program.Low.Name)
			}
			to.Signal(b.Nth)
		case program.OpWait:
			to.Wait(b.Peer, b.Nth)
		case program.OpLeave:
			to.Leave()
		case program.OpDrain: // behind the last piece, by who lends
		case program.OpCopy:
			for n < len(lane) && lane[n].Op == program.OpCopy {
				n++
			}
			n, err = to.Copies(lane[:n])
		case program.OpReduce:
			err = to.Reduce(b)
		default:
			err = fault.New(fault.Internal, "an instruction (%d) of plan %s that no device knows", b.Op, e.Program.Low.Name)
		}
	}
	return err
}

// Compile makes e.Program the program of a piece of a call.
func (e *Emitter) Compile(call *exec.Call, low *program.Lowered, piece int) error {
	e.Call = call
	p := e.Program
	if err := p.Compile(&e.Room, low, call, nil, piece); err != nil {
		return err
	}
	if p.Last >= page.MostPieces || !p.Straight && !p.Messages || p.Tmp > 0 && (e.Tmp == 0 || p.Tmp > e.Room.Slot) {
		return fault.New(fault.NotSupported, "%v by plan %s cannot be executed by a device", call.Coll, low.Name)
	}
	return nil
}

// Flush enqueues the words that have come together.
func (e *Emitter) Flush() error {
	if len(e.Words) == 0 {
		return nil
	}
	err := e.Stream.Words(e.Words)
	e.Words, e.Fresh = e.Words[:0], [page.WordsOfPeer]int{}
	return err
}

// Signals reports whether this rank signals; else nobody uses its window.
func (e *Emitter) Signals() bool { return len(e.Program.Low.Told) > 0 }

// Copies enqueues the first of some copies. Those that no other order would change are one launch.
func (e *Emitter) Copies(lane []program.Instruction) (n int, err error) {
	if e.chunks.Count = 0; e.Gathers {
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
	if err := e.Flush(); err != nil {
		return 0, err
	}
	gather := kernel.Gathering()
	blocks := max(gather.Blocks(bytes, e.Processors), int(e.chunks.Count))
	if err := e.Stream.Launch(e.Functions[gather.Function], blocks, kernel.BlockSize, e.chunks.Bytes()); err != nil {
		return 0, err
	}
	for i := range lane[:n] {
		e.place(&lane[i])
	}
	return n, nil
}

// joins adds what an instruction copies to the chunks that are copied together. It reports whether
// it could.
func (e *Emitter) joins(b *program.Instruction) bool {
	switch {
	case b.Way == program.WayNothing:
		return true
	case e.Program.Factor(b.Step) != 1:
		return false
	}
	before := e.chunks.Count
	from := e.source(&b.Src[0])
	ok := e.joinsTo(e.Address(&b.Dst), from, b.Bytes) &&
		(b.Way != program.WayFused || e.joinsTo(e.Address(&b.FusedCopy), from, b.Bytes))
	if !ok {
		e.chunks.Count = before
	}
	return ok
}

func (e *Emitter) joinsTo(to cuda.Ptr, from source, bytes int) bool {
	return to == from.at || e.chunks.Add(kernel.Chunk{Dst: uint64(to), Src: uint64(from.at), N: uint64(bytes),
		Lent: from.lent})
}

// Address returns where an operand is.
func (e *Emitter) Address(b *program.Operand) cuda.Ptr {
	off := cuda.Ptr(b.Off)
	switch b.Base {
	case program.BaseIn:
		return Pointer(e.Call.In[b.Index]) + off
	case program.BaseOut:
		return Pointer(e.Call.Out[b.Index]) + off
	case program.BaseTmp:
		return e.Tmp + off
	case program.BasePeer:
		return e.Places[b.Index] + cuda.Ptr(e.Slot*e.Room.Slot) + off
	}
	if p := e.loan(b.Chunk); p != 0 {
		return p
	}
	return e.Places[e.Room.Rank] + cuda.Ptr(e.Slot*e.Room.Slot) + off
}

// copy enqueues a copy, and the one that is fused with it.
func (e *Emitter) copy(b *program.Instruction) (err error) {
	if b.Way == program.WayNothing {
		return nil
	}
	to, from := e.Address(&b.Dst), e.source(&b.Src[0])
	if factor := e.Program.Factor(b.Step); factor != 1 {
		err = e.scale(to, from, b.Bytes, factor)
	} else {
		if to != from.at {
			err = e.move(to, from, b.Bytes)
		}
		if b.Way == program.WayFused && err == nil {
			if to = e.Address(&b.FusedCopy); to != from.at {
				err = e.move(to, from, b.Bytes)
			}
		}
	}
	e.place(b)
	return err
}

// move copies bytes: what may be anywhere by a kernel, which looks where it is.
func (e *Emitter) move(to cuda.Ptr, from source, bytes int) error {
	if from.lent.Place != 0 {
		e.single[0] = from
		return e.Launch(kernel.Copy(), to, bytes, 1, e.single[:])
	}
	if err := e.Flush(); err != nil {
		return err
	}
	return e.Stream.Copy(to, from.at, bytes)
}

// Reduce enqueues a reduction. A kernel has a limited number of sources, so there may be several,
// of which each but the first continues with the result of the one before. So that it never
// overwrites an operand that is still to come, the operand in the caller's memory is then copied to
// the scratch before.
func (e *Emitter) Reduce(b *program.Instruction) error {
	if b.Way == program.WayNothing {
		return nil
	}
	err := e.combine(b)
	e.place(b)
	return err
}

func (e *Emitter) combine(b *program.Instruction) error {
	to, n := e.Address(&b.Dst), b.Bytes/e.Call.Type.Size()
	several := len(b.Src) > kernel.MostSources
	e.sources = e.sources[:0]
	loaded := cuda.Ptr(0)
	for k := range b.Src {
		from := e.source(&b.Src[k])
		callers := b.Src[k].Base == program.BaseIn || b.Src[k].Base == program.BaseOwn &&
			from.at == to && e.loan(b.Src[k].Chunk) != 0
		if callers && (several || e.Program.Pre != 1) {
			into := to
			if several {
				if into = e.Scratch; loaded != 0 && loaded != from.at {
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
	sum, _ := kernel.Reduce(e.Call.Type, e.Call.Op)
	for left := e.sources; ; {
		most := min(len(left), kernel.MostSources)
		now := left[:most]
		if left = left[most:]; len(left) == 0 && b.Step.Final && e.Program.Post != 1 {
			scaled, _ := kernel.Scale(e.Call.Type)
			return e.Launch(scaled, to, n, e.Program.Post, now)
		}
		if err := e.Launch(sum, to, n, 1, now); err != nil || len(left) == 0 {
			return err
		}
		left = e.continued(left, to)
	}
}

// continued puts the result so far in front of the sources that are left.
func (e *Emitter) continued(left []source, result cuda.Ptr) []source {
	left = e.sources[len(e.sources)-len(left)-1:]
	left[0] = source{at: result}
	return left
}

// load copies an operand of the caller, multiplied by the factor that operands have.
func (e *Emitter) load(to cuda.Ptr, from source, bytes int) error {
	if e.Program.Pre != 1 {
		return e.scale(to, from, bytes, e.Program.Pre)
	}
	return e.move(to, from, bytes)
}

func (e *Emitter) scale(to cuda.Ptr, from source, bytes int, factor float64) error {
	scaled, _ := kernel.Scale(e.Call.Type)
	e.single[0] = from
	return e.Launch(scaled, to, bytes/e.Call.Type.Size(), factor, e.single[:])
}

func (e *Emitter) Launch(k kernel.Call, to cuda.Ptr, n int, factor float64, from []source) error {
	if err := e.Flush(); err != nil {
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
	return e.Stream.Launch(e.Functions[k.Function], k.Blocks(n, e.Processors), kernel.BlockSize,
		e.args.Bytes())
}

// Pointer returns the address of a block in the device's view.
func Pointer(b exec.Block) cuda.Ptr { return cuda.Ptr(uintptr(b.Ptr)) }
