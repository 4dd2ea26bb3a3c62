package tcp

import "github.com/goccl/goccl/transport"

// headroom is the space before a payload. The header lies at its end, so that header and payload
// are contiguous and the payload is aligned.
const headroom = 64

// fragment is a buffer that holds headroom and a payload.
type fragment struct {
	buf  []byte
	n    int
	meta transport.Meta
	full bool // it has arrived, and one before it has not
}

func (f *fragment) payload() []byte { return f.buf[headroom : headroom+f.n : headroom+f.n] }
func (f *fragment) frame() []byte   { return f.buf[headroom-headerBytes : headroom+f.n] }

// buffers is the memory of one direction of one channel: at most maxFragments short buffers and
// maxLong long ones, allocated when first needed. The buffer used last is reused first, so a
// channel of small messages stays in the cache.
type buffers struct {
	short [maxFragments][]byte
	long  [maxLong][]byte
	// The free buffers come first in the arrays; made counts those in use too.
	freeShort, freeLong, madeShort, madeLong int
}

// take returns a buffer for a payload of n bytes, or nil if all buffers of that size are in use.
func (b *buffers) take(n int) []byte {
	if n > shortPayload {
		if b.freeLong > 0 {
			b.freeLong--
			return b.long[b.freeLong]
		}
		if b.madeLong == maxLong {
			return nil
		}
		b.madeLong++
		return aligned(headroom + maxPayload)
	}
	if b.freeShort > 0 {
		b.freeShort--
		return b.short[b.freeShort]
	}
	if b.madeShort == maxFragments {
		return nil
	}
	b.madeShort++
	return aligned(headroom + shortPayload)
}

func (b *buffers) put(buf []byte) {
	if len(buf) > headroom+shortPayload {
		b.long[b.freeLong] = buf
		b.freeLong++
	} else {
		b.short[b.freeShort] = buf
		b.freeShort++
	}
}
