package p2p

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// kind is the type of a fragment. Word 0 of its Meta is magic (8 bits), kind (8 bits) and tag (48
// bits).
//
//	kind           word 1              word 2               payload
//	eager          message length      returned credit      first bytes of the message
//	eager rest     offset              0                    more of the last eager message or head
//	request        message length      sender's id          none
//	head           message length      sender's id          none; headBytes follow as eager rest
//	far head       message length      sender's id          none; FarLimit bytes follow as eager rest
//	clear          receiver's id       sender's id          none; answers a request
//	mismatch       receive length      sender's id          none; answers a request
//	data           offset              receiver's id        bytes of a cleared message
//	abort          0                   receiver's id        none; ends a cleared message
//	credit         bytes               0                    none; returns eager credit
//	eager mismatch receive length      message length       none; returns the message's credit
//
// A head is a request whose first bytes follow at once. A head or a request gets one answer.
// Each clear gets the data in order, or an abort at any point in the data. An empty message is done
// with its clear.
type kind uint8

const (
	kindEager kind = 1 + iota
	kindEagerRest
	kindRequest
	kindClear
	kindMismatch
	kindData
	kindAbort
	kindCredit
	kindEagerMismatch
	kindHead
	kindFarHead
)

const (
	magic = 'p'

	// maxLength is the longest message that a peer may announce.
	maxLength = 1 << 62
)

// setMeta fills the scratch Meta of p. A local Meta would escape to the heap through the interface.
func (p *peer) setMeta(k kind, tag uint64, w1, w2 uint64) *transport.Meta {
	p.meta = transport.Meta{word0(k, tag), w1, w2}
	return &p.meta
}

func word0(k kind, tag uint64) uint64 { return magic<<56 | uint64(k)<<TagBits | tag }

// parse splits word 0 into kind and tag. The kind of a fragment without magic is 0.
func parse(m *transport.Meta) (k kind, tag uint64) {
	if m[0]>>56 != magic {
		return 0, 0
	}
	return kind(m[0] >> TagBits), m[0] & (1<<TagBits - 1)
}

// broken returns the error of a peer that violates the protocol.
func (p *peer) broken(format string, args ...any) error {
	err := fault.Peer(fault.Internal, p.rank, format, args...)
	err.Text = "the point-to-point protocol was broken by this rank: " + err.Text +
		"; check that all ranks run the same version of goccl"
	return err
}
