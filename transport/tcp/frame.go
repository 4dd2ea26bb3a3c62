package tcp

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/goccl/goccl/transport"
)

// The kinds of frames.
const (
	kindArrived = 1
	kindResume  = 2
	kindOpen    = 3
	kindData    = 4
	kindCredit  = 5
	kindGoodbye = 6
	kindGone    = 7
)

// Sizes that both sides must agree on; part of the protocol.
const (
	headerBytes  = 48
	openBytes    = 16 + 4 + 4 + 4 + 32 // id, rank, peer, channels, proof
	maxFragments = 16                  // unreleased fragments of one direction of a channel
	maxLong      = 8                   // those of them that may be longer than shortPayload
	shortPayload = 8 << 10
	maxPayload   = 64 << 10
	maxSessions  = 1 << 16 // of one pair at the same time
	creditStep   = 4       // a receiver that has released this many fragments sends credit at once
)

// offloaded is how many bytes of a connection Linux passes on at once, to be cut into segments by
// the network card: 64 KiB without the space for headers.
const offloaded = 64<<10 - 1 - 320

// TLS cuts what it encrypts into records and adds a few bytes to each.
const (
	recordBytes = 16 << 10
	recordAdds  = 22
)

// longestPayload returns the payload of the longest fragment whose frame is passed on at once where
// segments have this size. One that is a little longer leaves a short rest behind it, a packet
// of its own for sender and receiver: fragments of 64 KiB took 1.3 times as long. It is a multiple
// of 64.
func longestPayload(segment int, secure bool) uint32 {
	if segment <= 0 {
		return maxPayload
	}
	whole := max(offloaded/segment, 1) * segment
	if secure {
		whole -= (whole + recordBytes - 1) / recordBytes * recordAdds
	}
	n := min(whole-headerBytes, maxPayload) &^ 63
	if n < maxPayload/2 {
		return maxPayload // loopback: its segments are half as long as what is passed on
	}
	return uint32(n)
}

// header is the decoded head of a frame; doc.go describes its layout.
type header struct {
	kind    byte
	channel byte
	check   uint16
	session uint32
	length  uint32
	credit  uint32
	number  uint32
	sum     uint32
	meta    transport.Meta
}

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	_ = b[headerBytes-1]
	b[0], b[1] = h.kind, h.channel
	le.PutUint16(b[2:], h.check)
	stamp(b, h.session, h.credit)
	le.PutUint32(b[8:], h.length)
	le.PutUint32(b[16:], h.number)
	le.PutUint32(b[20:], h.sum)
	for i, m := range h.meta {
		le.PutUint64(b[24+8*i:], m)
	}
}

// stamp fills in the fields that are known only when the frame is written.
func stamp(b []byte, session, credit uint32) {
	binary.LittleEndian.PutUint32(b[4:], session)
	binary.LittleEndian.PutUint32(b[12:], credit)
}

func (h *header) get(b []byte) {
	le := binary.LittleEndian
	_ = b[headerBytes-1]
	h.kind, h.channel, h.check = b[0], b[1], le.Uint16(b[2:])
	h.session, h.length, h.credit = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	h.number, h.sum = le.Uint32(b[16:]), le.Uint32(b[20:])
	for i := range h.meta {
		h.meta[i] = le.Uint64(b[24+8*i:])
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal fills in the checksums of a frame that is about to be written.
func seal(frame []byte) {
	le := binary.LittleEndian
	le.PutUint32(frame[20:], crc32.Checksum(frame[headerBytes:], castagnoli))
	le.PutUint16(frame[2:], headCheck(frame))
}

// headCheck returns the checksum of a header, without the field that holds it. It is never 0, which
// stands for no checksums.
func headCheck(b []byte) uint16 {
	sum := crc32.Update(crc32.Checksum(b[:2], castagnoli), castagnoli, b[4:headerBytes])
	return max(uint16(sum)^uint16(sum>>16), 1)
}
