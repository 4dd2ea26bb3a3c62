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
// maxLong long ones, times 2^scale, allocated when first needed. The buffer used last is reused
// first, so a channel of small messages stays in the cache.
type buffers struct{ short, long pool }

type pool struct {
	free [][]byte
	made int // those in use too
}

// take returns a buffer for a payload of n bytes, or nil if all buffers of that size are in use.
func (b *buffers) take(n int, scale uint32) []byte {
	if n > shortPayload {
		return b.long.take(maxPayload, maxLong<<scale)
	}
	return b.short.take(shortPayload, maxFragments<<scale)
}

func (b *buffers) put(buf []byte) {
	if len(buf) > headroom+shortPayload {
		b.long.free = append(b.long.free, buf)
	} else {
		b.short.free = append(b.short.free, buf)
	}
}

func (p *pool) take(bytes, most int) []byte {
	if last := len(p.free) - 1; last >= 0 {
		buf := p.free[last]
		p.free = p.free[:last]
		return buf
	}
	if p.made >= most {
		return nil
	}
	p.made++
	return aligned(headroom + bytes)
}
