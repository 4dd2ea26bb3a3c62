package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/transport"
)

// Sizes of the layout; both ends must agree on them.
const (
	Depth       = 16        // fragments in flight of one direction of a channel
	InlineBytes = 32        // payloads up to this lie in the descriptor's cache line
	SlotBytes   = 2 << 10   // of a private slot
	LeaseBytes  = 128 << 10 // of a slot of the pool
	MaxLeases   = 8         // of one channel at a time
	MaxSpare    = 4         // slots that a channel keeps for its next fragments, while nobody else needs them
)

// ChannelBytes is the memory that one end owns for each channel.
const ChannelBytes = int(unsafe.Sizeof(area{}))

// inline is a small payload.
type inline [InlineBytes / 8]uint64

func (i *inline) bytes() *[InlineBytes]byte { return (*[InlineBytes]byte)(unsafe.Pointer(i)) }

// line describes one fragment.
type line struct {
	word   atomic.Uint64
	meta   transport.Meta
	inline inline
}

// area is what one end owns of a channel. The released line has a neighbour of padding: processors fetch lines in pairs.
type area struct {
	released atomic.Uint32
	_        [124]byte
	lines    [Depth]line
	slots    [Depth][SlotBytes]byte
}

// areaAt is the area of channel i in the memory of one end.
func areaAt(memory []byte, i int) *area {
	return (*area)(unsafe.Pointer(&memory[i*ChannelBytes : (i+1)*ChannelBytes][0]))
}

// slotNumber is the word of a line that names a slot of the pool.
func (l *line) slotNumber() *uint32 { return (*uint32)(unsafe.Pointer(&l.inline)) }

// Kinds of payload memory.
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
