package rdma

import (
	"sync/atomic"

	"github.com/goccl/goccl/transport"
)

// channel is one end of a channel. Fragments have numbers and go by the connection or by tcp; the
// receiver takes them in their order, from wherever the next one is, and drops what has come twice.
type channel struct {
	link  *link
	index int
	tcp   transport.Channel
	out   outQueue
	in    atomic.Pointer[inQueue] // where the next fragments arrive; nil before the first connection

	// By the number of the path.
	queues  [MostPorts]atomic.Pointer[inQueue] // of its connection, or of an earlier one
	waiters [MostPorts]waiter                  // for room

	number uint64 // driver: of the fragment that is taken next
	looked source // driver: where Look has found it
	whole  []byte // driver: a fragment that has come by tcp in parts
	filled int    // driver: bytes of it that have come
	meta   transport.Meta
}

// source is where a fragment is.
type source byte

const (
	nowhere  source = iota
	inSlot          // of a connection
	inTCP           // in one part
	inPieces        // put together in whole
)

// Reserve implements transport.Channel.
func (c *channel) Reserve(n int) []byte { return c.out.reserve(n) }

// Publish implements transport.Channel. It posts at once: the peer can work on the fragment
// meanwhile.
func (c *channel) Publish(n int, m *transport.Meta) { c.out.publish(n, m) }

// Commit implements transport.Channel.
func (c *channel) Commit(n int, m *transport.Meta) {
	c.out.publish(n, m)
	c.Flush()
}

// Peek implements transport.Channel.
func (c *channel) Peek() ([]byte, transport.Meta, bool) {
	payload, m := c.Look()
	if m == nil {
		return nil, transport.Meta{}, false
	}
	return payload, *m, true
}

// Look implements transport.Channel.
func (c *channel) Look() ([]byte, *transport.Meta) {
	if c.link.closing.Load() {
		return nil, nil
	}
	for q := c.in.Load(); q != nil; q.release() {
		a := q.first()
		if a == nil {
			break
		}
		if a.head.number == c.number {
			c.looked = inSlot
			return a.payload, &a.head.meta
		}
		if a.head.number > c.number {
			break // those before it come by tcp
		}
	}
	if c.looked == inPieces {
		return c.whole[:c.filled], &c.meta
	}
	for {
		payload, m := c.tcp.Look()
		if m == nil {
			return nil, nil
		}
		var t tail
		if len(payload) < headBytes || !t.read(payload) {
			c.link.broke(protocolErrorf("sends a part of a fragment that is none"))
			return nil, nil
		}
		part := payload[headBytes:]
		switch {
		case t.number < c.number: // it has come over the connection before that broke
			c.tcp.Consume()
			continue
		case t.number > c.number:
			return nil, nil
		case int(t.whole) == len(part):
			c.looked = inTCP
			return part, m
		case int(t.at) != c.filled || len(part) == 0:
			c.link.broke(protocolErrorf("sends parts of a fragment that do not fit"))
			return nil, nil
		}
		if c.whole == nil {
			c.whole = make([]byte, longBytes)
		}
		c.filled += copy(c.whole[c.filled:], part)
		c.meta = *m
		c.tcp.Consume()
		if c.filled == int(t.whole) {
			c.looked = inPieces
			return c.whole[:c.filled], &c.meta
		}
	}
}

// Consume implements transport.Channel.
func (c *channel) Consume() {
	switch c.looked {
	case inSlot:
		c.in.Load().release()
	case inTCP:
		c.tcp.Consume()
	case inPieces:
	default:
		panic("rdma: Release without a fragment")
	}
	c.looked, c.filled = nowhere, 0
	c.number++
}

// Release implements transport.Channel.
func (c *channel) Release() {
	c.Consume()
	c.Flush()
}

// Flush implements transport.Channel.
func (c *channel) Flush() {
	if q := c.in.Load(); q != nil {
		q.tell()
	}
	c.tcp.Flush()
}

// resume goes on where there was no room.
func (c *channel) resume() {
	c.out.resume()
	if q := c.in.Load(); q != nil {
		q.tell()
	}
}

// credit returns what the peer is to learn of by a fragment that goes to it over way: how many were
// released that have come over it. 0 tells nothing new.
func (c *channel) credit(way *connection) uint32 {
	if way == nil { // it has broken since the fragment was begun
		return 0
	}
	return c.queues[way.path.number].Load().credit(way)
}

// theirs is the number of the channel at the peer.
func (c *channel) theirs() uint32 { return c.link.theirs.Load() + uint32(c.index) }
