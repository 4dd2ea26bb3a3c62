package kernel

import (
	"encoding/binary"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// Limits of a Table, as table.h has them.
const (
	MostRanks  = 8
	MostBlocks = 8
	MostSteps  = 40

	// FlagBytes are those of the flags of a rank: of each rank and block that writes them a word.
	FlagBytes = MostRanks * MostBlocks * wordBytes

	wordBytes = 8
)

// Table is the one parameter of a kernel that executes steps (Run), as table.h has it in CUDA.
type Table struct {
	Flags    [MostRanks]uint64 // by rank: where its flags are
	Released uint64            // where the host has a word that lets the kernel go: anything but 0
	Awaited  uint64            // where it has words, by rank, which say what the kernel waits for
	Rank     uint32
	Count    uint32 // of steps
	Steps    [MostSteps]Step
}

// StepKind is what a step of a Table does.
type StepKind uint32

// The kinds of steps. Copies, Reduces and Scales do what the kernels of these names do. The next
// two have a value in N and the bits of some ranks in Count:
//
//	Signals writes the value to the flags of this rank at each of these
//	Waits   ends when the flags that these have written here are not before the value: those of
//	        the same block, or of the first Src[0] blocks if that is not 0
//
// Puts and Takes move N bytes in packets, each of 4 bytes and of the flag Src[1], which is not 0.
// Puts writes packets at Dst, in memory of a peer, from the data at Src[0], and of what follows at
// Dst as many as make Src[2] packets in all. Takes waits for the packets at Src[0], which rank
// Src[2] writes, and writes the data to Dst.
const (
	Copies StepKind = 1 + iota
	Reduces
	Scales
	Signals
	Waits
	Puts
	Takes
)

const (
	tableBytes   = 3928
	releasedAt   = 64
	awaitedAt    = 72
	rankAt       = 80
	stepsCountAt = 84
	stepsAt      = 88
)

// These do not compile where the layout is another.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Table{})-tableBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(Table{}.Released)-releasedAt]
	_ = [1]struct{}{}[unsafe.Offsetof(Table{}.Awaited)-awaitedAt]
	_ = [1]struct{}{}[unsafe.Offsetof(Table{}.Rank)-rankAt]
	_ = [1]struct{}{}[unsafe.Offsetof(Table{}.Count)-stepsCountAt]
	_ = [1]struct{}{}[unsafe.Offsetof(Table{}.Steps)-stepsAt]
)

// Bytes returns the memory of t, which is what a launch passes to the device.
func (t *Table) Bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(t)), tableBytes) }

// decodeTable is the reverse of Bytes, for bytes at any address.
func decodeTable(b []byte) *Table {
	little := binary.LittleEndian
	t := &Table{Released: little.Uint64(b[releasedAt:]), Awaited: little.Uint64(b[awaitedAt:]),
		Rank: little.Uint32(b[rankAt:]), Count: little.Uint32(b[stepsCountAt:])}
	for rank := range t.Flags {
		t.Flags[rank] = little.Uint64(b[wordBytes*rank:])
	}
	for i := range t.Steps {
		t.Steps[i] = decodeStep(b[stepsAt+stepBytes*i:])
	}
	return t
}

// Add appends a step. It reports whether there was room for it.
func (t *Table) Add(kind StepKind, s Step) bool {
	if t.Count == MostSteps {
		return false
	}
	s.Kind = kind
	t.Steps[t.Count] = s
	t.Count++
	return true
}

// Signal appends a step that writes a value to some ranks, of which peers has the bits.
func (t *Table) Signal(peers uint32, value uint64) bool {
	return t.Add(Signals, Step{N: value, Count: peers})
}

// Wait appends a step that waits for a value of some ranks, of which peers has the bits: of the
// block that waits, or of blocks, if that is not 0. What the step before waits for, too,
// is the same step.
func (t *Table) Wait(peers uint32, value uint64, blocks int) bool {
	if t.Count > 0 {
		last := &t.Steps[t.Count-1]
		if last.Kind == Waits && last.N == value && last.Src[0] == uint64(blocks) {
			last.Count |= peers
			return true
		}
	}
	return t.Add(Waits, Step{N: value, Count: peers, Src: [MostSources]uint64{uint64(blocks)}})
}

// Packet is a packet: 4 bytes of data, and the flag that says that they are there.
func Packet(data []byte, flag uint32) uint64 {
	var word [4]byte
	copy(word[:], data)
	return uint64(binary.LittleEndian.Uint32(word[:])) | uint64(flag)<<32
}

// PacketBytes are those of a packet, and PacketData of its data.
const (
	PacketBytes = 8
	PacketData  = 4
)

// Packets returns how many packets a number of bytes takes.
func Packets(bytes int) int { return (bytes + PacketData - 1) / PacketData }

// Put appends a step that puts bytes into packets of a peer, which get a flag, as do all others of
// so many packets.
func (t *Table) Put(to, from uint64, bytes int, flag uint32, packets int) bool {
	return t.Add(Puts, Step{Dst: to, N: uint64(bytes), Count: 1,
		Src: [MostSources]uint64{from, uint64(flag), uint64(packets)}})
}

// Take appends a step that waits for packets that a rank puts, and takes the bytes out of them.
func (t *Table) Take(to, from uint64, bytes int, flag uint32, rank int) bool {
	return t.Add(Takes, Step{Dst: to, N: uint64(bytes), Count: 1,
		Src: [MostSources]uint64{from, uint64(flag), uint64(rank)}})
}

// RunOf returns the kernel for tables with reductions by one operator, where dtype.Reducible allows
// it. It also copies, and scales sums.
func RunOf(t dtype.Type, op dtype.Op) (Call, bool) {
	if int(t) >= len(runners) || int(op) >= len(runners[t]) {
		return Call{}, false
	}
	c := runners[t][op]
	return c, c.Function != nil
}

// RunCopies returns the kernel for tables that only copy.
func RunCopies() Call { return copyRunner }

// step returns the function that does what a step of a table does.
func (f *Function) step(kind StepKind) (*Function, error) {
	var does *Function
	switch {
	case kind == Copies:
		does = copying.Function
	case kind == Reduces && f != copyRunner.Function:
		does = byName[prefix+"reduce_"+f.op.String()+"_"+f.to.String()]
	case kind == Scales && f.op == dtype.Sum:
		does = byName[prefix+"scale_"+f.to.String()]
	}
	if does == nil {
		return nil, fault.New(fault.Invalid, "%s does no steps of kind %d", f.Name, kind)
	}
	return does, nil
}

// UnitBytes returns the bytes of a unit of the results of f.
func (f *Function) UnitBytes() int { return f.to.Size() }

// Step returns the kind of the steps of tables that do what a launch of f does; 0 if there is none.
func (f *Function) Step() StepKind {
	switch f.kind {
	case copies:
		return Copies
	case reduces:
		return Reduces
	case scales:
		return Scales
	}
	return 0
}
