package program

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
)

// Opcode is what an instruction does.
type Opcode uint8

// The opcodes.
const (
	OpSignal Opcode = iota // words: publishes how many signals this rank has given
	OpWait                 // words: waits until a peer has given the required number of signals
	OpCopy                 // a chunk of a copy or get
	OpReduce               // a chunk of a reduce or getreduce
	OpEnter                // waits until the slot of the windows is free
	OpLeave                // announces that this rank no longer reads the window of any peer
	OpDrain                // waits until no peer reads memory that this rank exposes
	OpSend
	OpRecv
	OpPut  // frames: a put, packet or signal
	OpTake // frames: waits for a signal
)

// Instruction is a step of a plan, or one chunk of it.
type Instruction struct {
	Op        Opcode
	First     bool // words: the first that this rank publishes, or waits for from the peer, in the operation
	Extended  bool // words: records hold more than the call
	Plain     bool // its elements are not multiplied
	Way       Way
	Gated     bool
	Rings     bool // words: the signal wakes peers that sleep at once
	Peer      int
	Nth       int // words: the count
	Bytes     int
	Elems     int   // of a reduction
	Step      *Step // nil if the instruction does not come from a step of the plan
	Src       []Operand
	Dst       Operand
	FusedCopy Operand
	To, From  []Chunk // of messages
	Gates     []Gate
	PC        int // index of the step in its lane; -1 before all steps, and the length of the lane behind them
}

// Way is how a copy, get, reduce or getreduce is done. The most common ways are distinguished when
// the program is compiled.
type Way uint8

// The ways.
const (
	WayGeneral Way = iota
	WayNothing     // there is nothing to do
	Way4           // the copy of a number of 4 bytes
	Way8           // … of 8 bytes
	Way16          // … of a complex number of 16 bytes
	WayFused       // the copy also does the step's FusedCopy
	WayOfTwo       // the reduction has two sources, and nothing is multiplied
)

// FuseTile is how many bytes of a source are copied to one place and then, while they are in the
// first-level cache, to another. With 4 to 16 KiB the string copy, which starts anew each time, was
// slower than two whole copies. Shorter chunks are not fused.
const FuseTile = 32 << 10

// fuseClaiming is the length up to which chunks are not fused where memory is claimed: they come
// from the second cache as fast, and the signal between the two copies comes earlier. An all_gather
// of 256 KiB on two ranks took 16.9 instead of 17.8 µs (Intel Emerald Rapids, 2026-11).
const fuseClaiming = 256 << 10

// fuses reports whether a copy of the given size and the one behind it are done in one pass.
func fuses(bytes int) bool {
	if kernel.Claims() {
		return bytes > fuseClaiming
	}
	return bytes > FuseTile
}

func (b *Instruction) chooseWay() Way {
	long := fuses(b.Bytes)
	switch {
	case b.Bytes == 0 || long && b.Step.FusedInto != nil:
		return WayNothing
	case b.Op == OpReduce && len(b.Src) == 2 && b.Plain:
		return WayOfTwo
	case b.Op == OpReduce:
		return WayGeneral
	case long && b.Step.FusedCopy != nil:
		return WayFused
	case b.Bytes == 4 && b.Plain:
		return Way4
	case b.Bytes == 8 && b.Plain:
		return Way8
	case b.Bytes == 16 && b.Plain:
		return Way16
	}
	return WayGeneral
}

// Base is the memory in which an operand lies.
type Base uint8

// The bases.
const (
	BaseIn Base = iota
	BaseOut
	BaseTmp
	BaseOwn  // the window of this rank, or memory that this rank exposes in its place
	BasePeer // the window of a peer, or memory that the peer exposes in its place
)

// Operand is a chunk of a buffer. Its address depends on the buffers of a call and on the turn of
// the windows.
type Operand struct {
	Base  Base
	Buf   plan.Buffer
	Index int32 // block of In or Out; rank of a window
	Chunk int32 // of the buffer
	Off   int
	At    unsafe.Pointer // of a window: the first chunk, in the first turn; else nil
}

// ref returns the chunk of an operand.
func (o *Operand) ref() plan.Ref { return plan.Ref{Buf: o.Buf, At: int(o.Chunk), N: 1} }

// Chunk is an operand with its length.
type Chunk struct {
	Operand
	Bytes int
}

// Total returns the number of bytes of some chunks.
func Total(chunks []Chunk) int {
	n := 0
	for i := range chunks {
		n += chunks[i].Bytes
	}
	return n
}
