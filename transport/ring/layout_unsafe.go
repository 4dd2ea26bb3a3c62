package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/transport"
)

// Sizes of the layout; both ends must agree on them.
const (
	Depth       = 16        // fragments in flight in one direction of a channel
	InlineBytes = 24        // largest payload that lies in the descriptor's cache line
	SlotBytes   = 2 << 10   // largest size of a private slot
	LeastSlot   = 256       // smallest size of a private slot
	LeaseBytes  = 128 << 10 // size of a slot of the pool
	MaxLeases   = 8         // that one channel may hold at a time
	MaxSpare    = 4         // slots that a channel keeps for its next fragments, unless another channel needs them
)

// AreaBytes returns the size of the memory that one end owns for each channel, with private slots
// of the given size.
func AreaBytes(slot int) int { return headBytes + Depth*slot }

const headBytes = int(unsafe.Sizeof(area{}))

// ChannelBytes is AreaBytes with the largest slots.
const ChannelBytes = headBytes + Depth*SlotBytes

// CheckSlot reports whether private slots may have the given size: the peer announces the size of
// its own.
func CheckSlot(bytes int) bool { return bytes >= LeastSlot && bytes <= SlotBytes && bytes%64 == 0 }

// inline is a small payload.
type inline [InlineBytes / 8]uint64

func (i *inline) bytes() *[InlineBytes]byte { return (*[InlineBytes]byte)(unsafe.Pointer(i)) }

// line describes one fragment.
type line struct {
	word   atomic.Uint64
	meta   transport.Meta
	given  uint64 // how many fragments the writer had given back
	inline inline
}

// area is the head of one end's memory for a channel; the private slots follow. The line of
// released is followed by a line of padding because processors fetch lines in pairs.
type area struct {
	released atomic.Uint64
	_        [120]byte
	lines    [Depth]line
}

// areaAt returns the area of channel i in the memory of one end, whose private slots have the given
// size.
func areaAt(memory []byte, i, slot int) *area {
	n := AreaBytes(slot)
	return (*area)(unsafe.Pointer(&memory[i*n : (i+1)*n][0]))
}

// line returns the descriptor of fragment i. It does not use &a.lines[i%Depth]: the compiler would
// check a for nil by reading its first byte. That byte lies in the line of the released count,
// which would then move between the cores with every fragment.
func (a *area) line(i uint64) *line {
	return (*line)(unsafe.Add(unsafe.Pointer(a), unsafe.Offsetof(a.lines)+uintptr(i%Depth)*unsafe.Sizeof(line{})))
}

// slot returns private slot i.
func (a *area) slot(i uint64, bytes int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(a), headBytes+int(i)*bytes)), bytes)
}

// place returns the word of a line that holds the payload's offset in the pool.
func (l *line) place() *uint64 { return &l.inline[0] }

// Kinds of memory that a payload lies in.
const (
	inLine = iota + 1
	inSlot
	inPool
)

func packWord(number uint32, kind, n int) uint64 {
	return uint64(number)<<32 | uint64(kind)<<28 | uint64(n)
}

func unpackWord(w uint64) (number uint32, kind, n int) {
	return uint32(w >> 32), int(w >> 28 & 15), int(w & (1<<28 - 1))
}
