package tcp

import (
	"encoding/binary"

	"github.com/goccl/goccl/transport"
)

// The kinds of frames.
const (
	kindOpen    = 1
	kindData    = 2
	kindCredit  = 3
	kindGoodbye = 4
)

// Sizes that both sides must agree on; part of the protocol.
const (
	headerBytes  = 48
	openBytes    = 16 + 4 + 4 + 4 + 32 // id, rank, peer, channels, proof
	maxFragments = 16                  // unreleased fragments of one direction of a channel
	maxLong      = 8                   // those of them that may be longer than shortPayload
	shortPayload = 8 << 10
	maxPayload   = 64 << 10
	maxSessions  = 1 << 16 // of one connection
	creditStep   = 4       // a receiver that owes credit for this many fragments sends it at once
)

// header is the decoded head of a frame; doc.go describes its layout.
type header struct {
	kind    byte
	channel byte
	zero    uint16
	session uint32
	length  uint32
	credit  uint32
	seq     uint64
	meta    transport.Meta
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	_ = b[headerBytes-1]
	b[0], b[1] = h.kind, h.channel
	le.PutUint16(b[2:], h.zero)
	le.PutUint32(b[4:], h.session)
	le.PutUint32(b[8:], h.length)
	putStamp(b, h.credit, h.seq)
	for i, m := range h.meta {
		le.PutUint64(b[24+8*i:], m)
	}
}

// putStamp fills in the fields that are known only when the frame is written.
func putStamp(b []byte, credit uint32, seq uint64) {
	binary.LittleEndian.PutUint32(b[12:], credit)
	binary.LittleEndian.PutUint64(b[16:], seq)
}

func (h *header) get(b []byte) {
	le := binary.LittleEndian
	_ = b[headerBytes-1]
	h.kind, h.channel, h.zero = b[0], b[1], le.Uint16(b[2:])
	h.session, h.length, h.credit = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	h.seq = le.Uint64(b[16:])
	for i := range h.meta {
		h.meta[i] = le.Uint64(b[24+8*i:])
	}
}
