package group

import (
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
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
	words   []cuda.WordOp    // to be enqueued at once
	fresh   [wordsOfPeer]int // by word: 1 + where words has the last write of it to all peers, 0 if it has none
	sources []source
	single  [1]source
	args    kernel.Arguments
	chunks  kernel.Gather
}

// compile makes e.program the program of a piece of a call.
func (e *emitter) compile(call *exec.Call, low *program.Lowered, piece int) error {
	p := &e.program
	if err := p.Compile(&e.room, low, call, nil, piece); err != nil {
		return err
	}
	if p.Last >= mostPieces || !p.Straight && !p.Messages || p.Tmp > 0 && (e.tmp == 0 || p.Tmp > e.room.Slot) {
		return fault.New(fault.NotSupported, "%v by plan %s cannot be executed by a device", call.Coll, low.Name)
	}
	return nil
}

// flush enqueues the words that have come together.
func (e *emitter) flush() error {
	if len(e.words) == 0 {
		return nil
	}
	err := e.stream.Words(e.words)
	e.words, e.fresh = e.words[:0], [wordsOfPeer]int{}
	return err
}

// emit enqueues the first instructions of a lane, which is a copy or a reduction, and returns how
// many: copies that follow each other, and that no other order would change, are one launch.
func (e *emitter) emit(call *exec.Call, lane []program.Instruction, slot int) (n int, err error) {
	if e.chunks.Count = 0; e.gathers {
		for n < len(lane) && e.joins(call, &lane[n], slot) {
			n++
		}
	}
	if e.chunks.Count < 2 {
		return 1, e.emitOne(call, &lane[0], slot)
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
		if b := &lane[i]; b.Way != program.WayNothing && b.Dst.Base == program.BaseOwn {
			e.place(b.Dst.Chunk, slot)
		}
	}
	return n, nil
}

// joins adds what an instruction copies to the chunks that are copied together. It reports whether
// it could.
func (e *emitter) joins(call *exec.Call, b *program.Instruction, slot int) bool {
	switch {
	case b.Op != program.OpCopy:
		return false
	case b.Way == program.WayNothing:
		return true
	case e.program.Factor(b.Step) != 1:
		return false
	}
	before := e.chunks.Count
	from := e.source(call, &b.Src[0], slot)
	ok := e.joinsTo(e.address(call, &b.Dst, slot), from, b.Bytes) &&
		(b.Way != program.WayFused || e.joinsTo(e.address(call, &b.FusedCopy, slot), from, b.Bytes))
	if !ok {
		e.chunks.Count = before
	}
	return ok
}

func (e *emitter) joinsTo(to cuda.Ptr, from source, bytes int) bool {
	return to == from.at || e.chunks.Add(kernel.Chunk{Dst: uint64(to), Src: uint64(from.at), N: uint64(bytes),
		Lent: from.lent})
}

// emitOne enqueues a copy or a reduction.
func (e *emitter) emitOne(call *exec.Call, b *program.Instruction, slot int) error {
	if b.Op != program.OpCopy && b.Op != program.OpReduce {
		return fault.New(fault.Internal, "an instruction (%d) of plan %s that no device knows", b.Op, e.program.Low.Name)
	}
	if b.Way == program.WayNothing {
		return nil
	}
	var err error
	if b.Op == program.OpCopy {
		err = e.copy(call, b, slot)
	} else {
		err = e.reduce(call, b, slot)
	}
	if b.Dst.Base == program.BaseOwn {
		e.place(b.Dst.Chunk, slot)
	}
	return err
}

// address returns where an operand is.
func (e *emitter) address(call *exec.Call, b *program.Operand, slot int) cuda.Ptr {
	off := cuda.Ptr(b.Off)
	switch b.Base {
	case program.BaseIn:
		return pointer(call.In[b.Index]) + off
	case program.BaseOut:
		return pointer(call.Out[b.Index]) + off
	case program.BaseTmp:
		return e.tmp + off
	case program.BasePeer:
		return e.places[b.Index] + cuda.Ptr(slot*e.room.Slot) + off
	}
	if p := e.loan(b.Chunk); p != 0 {
		return p
	}
	return e.places[e.room.Rank] + cuda.Ptr(slot*e.room.Slot) + off
}

// copy enqueues a copy, and the one that is fused with it.
func (e *emitter) copy(call *exec.Call, b *program.Instruction, slot int) error {
	factor := e.program.Factor(b.Step)
	to, from := e.address(call, &b.Dst, slot), e.source(call, &b.Src[0], slot)
	switch {
	case factor != 1:
		return e.scale(call, to, from, b.Bytes, factor)
	case to != from.at:
		if err := e.move(to, from, b.Bytes); err != nil {
			return err
		}
	}
	if b.Way != program.WayFused {
		return nil
	}
	if to = e.address(call, &b.FusedCopy, slot); to == from.at {
		return nil
	}
	return e.move(to, from, b.Bytes)
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
func (e *emitter) reduce(call *exec.Call, b *program.Instruction, slot int) error {
	to, n := e.address(call, &b.Dst, slot), b.Bytes/call.Type.Size()
	several := len(b.Src) > kernel.MostSources
	e.sources = e.sources[:0]
	loaded := cuda.Ptr(0)
	for k := range b.Src {
		from := e.source(call, &b.Src[k], slot)
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
			if err := e.load(call, into, from, b.Bytes); err != nil {
				return err
			}
			from.at = into
		}
		e.sources = append(e.sources, from)
	}
	sum, _ := kernel.Reduce(call.Type, call.Op)
	for left := e.sources; ; {
		most := min(len(left), kernel.MostSources)
		now := left[:most]
		if left = left[most:]; len(left) == 0 && b.Step.Final && e.program.Post != 1 {
			scaled, _ := kernel.Scale(call.Type)
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
func (e *emitter) load(call *exec.Call, to cuda.Ptr, from source, bytes int) error {
	if e.program.Pre != 1 {
		return e.scale(call, to, from, bytes, e.program.Pre)
	}
	return e.move(to, from, bytes)
}

func (e *emitter) scale(call *exec.Call, to cuda.Ptr, from source, bytes int, factor float64) error {
	scaled, _ := kernel.Scale(call.Type)
	e.single[0] = from
	return e.launch(scaled, to, bytes/call.Type.Size(), factor, e.single[:])
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
