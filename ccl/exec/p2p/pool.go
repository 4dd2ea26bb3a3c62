package p2p

import "math/bits"

// Buffers of eager messages have sizes from 64 bytes to FarLimit, doubling. The pool keeps at
// most keepBytes of free buffers and keepMessages free records.
const (
	smallestClass = 6 // 64 bytes
	classes       = 17
	keepBytes     = 1 << 20
	keepMessages  = 4096
)

// recordCost is what an eager message costs beside its buffer: its record. So empty messages are
// bounded too.
const recordCost = 128

// pool keeps free buffers and records of unexpected messages and rendezvous, so that steady traffic
// does not allocate.
type pool struct {
	messages  *message // linked by next
	count     int
	buffers   [classes][][]byte
	freeBytes int
}

// class returns the class of the buffer for n bytes, 1 ≤ n ≤ FarLimit.
func class(n int) int { return max(bits.Len(uint(n-1)), smallestClass) - smallestClass }

// eagerCost returns the credit that an eager message of n bytes uses: the memory that it takes at
// the receiver if no receive is posted for it.
func eagerCost(n int) int {
	if n == 0 {
		return recordCost
	}
	return recordCost + 1<<(class(n)+smallestClass)
}

func (p *pool) message() *message {
	m := p.messages
	if m == nil {
		return new(message)
	}
	p.messages = m.next
	p.count--
	m.next = nil
	return m
}

// putMessage takes back a record and its buffer.
func (p *pool) putMessage(m *message) {
	p.putBuffer(m.buf)
	*m = message{}
	if p.count < keepMessages {
		m.next = p.messages
		p.messages = m
		p.count++
	}
}

// buffer returns n bytes, or nil if n is 0.
func (p *pool) buffer(n int) []byte {
	if n == 0 {
		return nil
	}
	c := class(n)
	free := p.buffers[c]
	if len(free) == 0 {
		return make([]byte, n, 1<<(c+smallestClass))
	}
	b := free[len(free)-1]
	p.buffers[c] = free[:len(free)-1]
	p.freeBytes -= cap(b)
	return b[:n]
}

func (p *pool) putBuffer(b []byte) {
	if cap(b) == 0 || p.freeBytes+cap(b) > keepBytes {
		return
	}
	c := class(cap(b))
	p.buffers[c] = append(p.buffers[c], b)
	p.freeBytes += cap(b)
}
