package rdma

import (
	"encoding/binary"

	"github.com/goccl/goccl/transport"
)

// Slots. Each begins with a head, before the payload.
const (
	headBytes  = 64
	shortSlots = 8        // of each channel and direction
	shortBytes = 8 << 10  // of a short slot
	leastBytes = 1 << 10  // of a short slot from the ninth link to a process on
	roomyLinks = 8        // links to a process whose short slots have the full size
	longBytes  = 64 << 10 // of a long slot
	mostLong   = values   // long slots of an adapter, in each direction
	mostGrants = 8        // long slots that a channel may have at a time
	mostFlight = 16       // fragments of a channel in slots; a power of two
)

// head is what lies before a payload in a slot, little endian:
//
//	offset  0  number  u64  of the fragment in its channel and direction
//	        8  wants   u32  bit 0: a longer slot would have been used; bit 1: the sender waits until
//	                        the fragment is released
//	       12  credit  u32  fragments of the other direction that the sender has released
//	       16  meta    3 × u64
type head struct {
	number uint64
	wants  bool
	waits  bool
	credit uint32
	meta   transport.Meta
}

func (h *head) put(b []byte) {
	le := binary.LittleEndian
	_ = b[headBytes-1]
	le.PutUint64(b, h.number)
	wants := uint32(0)
	if h.wants {
		wants = 1
	}
	if h.waits {
		wants |= 2
	}
	le.PutUint32(b[8:], wants)
	le.PutUint32(b[12:], h.credit)
	for i, m := range h.meta {
		le.PutUint64(b[16+8*i:], m)
	}
}

func (h *head) get(b []byte) {
	le := binary.LittleEndian
	_ = b[headBytes-1]
	wants := le.Uint32(b[8:])
	h.number, h.wants, h.waits, h.credit = le.Uint64(b), wants&1 != 0, wants&2 != 0, le.Uint32(b[12:])
	for i := range h.meta {
		h.meta[i] = le.Uint64(b[16+8*i:])
	}
}

// tail is what lies before a part of a payload that travels by tcp, in as many bytes as a head, so
// that payloads stay aligned:
//
//	offset  0  number  u64  of the fragment
//	        8  at      u32  where in the fragment the part begins
//	       12  whole   u32  bytes of the fragment
type tail struct {
	number    uint64
	at, whole uint32
}

func (h *tail) put(b []byte) {
	le := binary.LittleEndian
	_ = b[headBytes-1]
	le.PutUint64(b, h.number)
	le.PutUint32(b[8:], h.at)
	le.PutUint32(b[12:], h.whole)
	clear(b[16:headBytes])
}

// read reports whether the part lies in its fragment, and no fragment is longer than a slot.
func (h *tail) read(b []byte) bool {
	le := binary.LittleEndian
	h.number, h.at, h.whole = le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:])
	return h.whole <= transport.MaxFragment && int(h.at)+len(b)-headBytes <= int(h.whole) &&
		(h.whole <= longBytes || h.at == 0 && len(b)-headBytes == int(h.whole))
}
