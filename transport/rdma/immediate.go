package rdma

// kind says what an immediate tells.
type kind uint32

const (
	kindShort  kind = iota // a fragment in the next short slot of the channel
	kindLong               // a fragment in a long slot that was granted to the channel; value is which
	kindCredit             // fragments of the channel that the peer has released, modulo values
	kindGrant              // the channel may use the long slot value of the peer once
	kindProbe              // the trial of a connection
)

// An immediate has a kind, the number of a channel at the receiver, and a value.
const (
	valueBits   = 12
	channelBits = 17
	values      = 1 << valueBits   // of an immediate
	mostChannel = 1 << channelBits // channels of an adapter
)

func immediate(k kind, channel, value uint32) uint32 {
	return uint32(k)<<(channelBits+valueBits) | channel<<valueBits | value%values
}

func parts(immediate uint32) (k kind, channel, value uint32) {
	return kind(immediate >> (channelBits + valueBits)), immediate >> valueBits % mostChannel, immediate % values
}
