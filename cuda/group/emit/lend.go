package emit

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/kernel"
)

// A call's buffers may lie in an Arena, which the devices of the peers reach. If the plan allows it
// (plan.Lend, proven by package verify), a window chunk that would be a copy of such a buffer is
// that buffer itself: it is lent, and the copy is left out.
//
// A rank does not know, when it enqueues, what its peers lend. So each rank has, for every chunk of
// a slot of its window, a word in its page, the place of the chunk: in the window, or at an offset
// in its arena. It writes the place where it would have copied the chunk, if the peers know another
// one, and so before the signal for which they wait. The peers' copies and reductions are kernels
// that look there (package kernel). A rank without an arena lends nothing, and is read as ever.
//
// Each rank decides for itself, call by call, whether it lends. One that does waits at the end of
// the call until all peers have ended it, since what follows in the caller's stream may write the
// buffers again. Its offers are not in a stream ahead: there is little to copy.

// leastLent is the number of bytes from which on a rank lends: with fewer, a copy takes less time
// than to wait for the peers at the end. That is a guess, as long as nobody has measured it.
const leastLent = 32 << 10

// Lent is the arena of a rank as the device of this rank reaches it.
type Lent struct {
	Base  cuda.Ptr
	Bytes int // 0 for none
}

// place returns the offset of memory in the arena; ok is false if it is not there.
func (l Lent) place(p cuda.Ptr, bytes int) (at int, ok bool) {
	if bytes > l.Bytes || p < l.Base || p-l.Base > cuda.Ptr(l.Bytes-bytes) {
		return 0, false
	}
	return int(p - l.Base), true
}

// lending is what an Emitter knows of arenas; its zero value is for a group without.
type Lending struct {
	Arena   Lent       // of this rank
	Arenas  []Lent     // by rank; nil if no rank has one
	Records []cuda.Ptr // by rank: its places
	Lends   bool       // in the call that is being enqueued
	loans   [program.MaxExposed]cuda.Ptr
	Told    [plan.WindowSlots][program.MaxExposed]bool // the place of a chunk is in the arena
	number  uint64                                     // of places so far
}

// Decide decides whether this rank lends in a call.
func (l *Lending) Decide(rank int, call *exec.Call, low *program.Lowered) {
	l.Lends = false
	if l.Arena.Bytes == 0 || !low.Exposes || call.Coll.Reduces() && call.Op == dtype.PremulSum {
		return // PREMUL_SUM multiplies what it copies
	}
	bytes := 0
	for _, r := range low.Exposable {
		if r.N == 0 {
			continue
		}
		b := blockOf(call, low, r)
		n := b.Count * call.Type.Size()
		if at, ok := l.Arena.place(Pointer(b), n); ok && at%call.Type.Size() == 0 {
			bytes += n / low.Split
		}
	}
	if bytes < leastLent {
		return
	}
	// What a plan that is not made for calls in place lends would be overwritten.
	inPlace, err := call.Overlap(rank)
	l.Lends = err == nil && !(inPlace && low.Alias&plan.InPlace == 0)
}

// blockOf returns the block of a chunk of In or Out.
func blockOf(call *exec.Call, low *program.Lowered, r plan.Ref) exec.Block {
	if r.Buf == plan.Out {
		return call.Out[r.At/low.Split]
	}
	return call.In[r.At/low.Split]
}

// LendPiece finds what this rank lends in the piece that has been compiled.
func (e *Emitter) LendPiece() {
	clear(e.loans[:])
	if !e.Lends {
		return
	}
	for i, r := range e.Program.Low.Exposable {
		if r.N == 0 {
			continue
		}
		source := &e.Program.Chunks[r.Buf][r.At]
		p := e.Address(&source.Operand)
		if at, ok := e.Arena.place(p, source.Bytes); ok && source.Bytes > 0 && at%e.Call.Type.Size() == 0 {
			e.loans[i] = p
		}
	}
}

// loan returns where a chunk of this rank's window is if it is lent, else 0.
func (l *Lending) loan(chunk int32) cuda.Ptr {
	if !l.Lends || int(chunk) >= len(l.loans) {
		return 0
	}
	return l.loans[chunk]
}

// place has the stream tell the peers where the chunk of this rank's window is that an instruction
// writes, if they know another place. The slot has been left by all.
func (e *Emitter) place(b *program.Instruction) {
	if b.Way == program.WayNothing || b.Dst.Base != program.BaseOwn || e.Arena.Bytes == 0 || !e.Program.Low.Exposes {
		return
	}
	chunk, slot := b.Dst.Chunk, e.Slot
	p := e.loan(chunk)
	if p == 0 && !e.Told[slot][chunk] {
		return
	}
	at, lent := e.Arena.place(p, 0) // which is not there if it is 0
	e.Told[slot][chunk] = lent
	e.number++
	e.Words = append(e.Words, cuda.WordOp{At: e.Records[e.Room.Rank] + cuda.Ptr(page.PlaceOf(slot, int(chunk))),
		Value: kernel.Place(e.number, lent, uint64(at))})
}

// source is where an operation reads: at an address, or where a place says.
type source struct {
	at   cuda.Ptr
	lent kernel.Lent // no Place if the operand is at its address
}

// source returns where an operand is read.
func (e *Emitter) source(b *program.Operand) source {
	s := source{at: e.Address(b)}
	if b.Base != program.BasePeer || e.Arenas == nil || !e.Program.Low.Exposes || e.Arenas[b.Index].Bytes == 0 {
		return s
	}
	arena := e.Arenas[b.Index]
	s.lent = kernel.Lent{Place: uint64(e.Records[b.Index] + cuda.Ptr(page.PlaceOf(e.Slot, int(b.Chunk)))),
		Base: uint64(arena.Base), Bytes: uint64(arena.Bytes)}
	return s
}

// errTwice is for a plan that no device executes while it lends: there is one scratch.
func (e *Emitter) errTwice() error {
	return fault.New(fault.NotSupported, "plan %s reduces two operands of the caller at once from so many ranks; "+
		"GOCCL_CUDA_REGISTERED=0 does without registered memory", e.Program.Low.Name)
}
