package rdma

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// What is sent in place is read by the adapter until its write completes, and again, by tcp, if the
// connection breaks before the peer has released it. So it is Sent once the peer has released it
// and the write has completed. If nobody will take it, the end of the write is enough, or of the
// queue pair.

// gatherPatience is how long a write of what was withdrawn may take. Then its connection ends, and
// with it all that reads the memory.
const gatherPatience = 50 * time.Millisecond

// Gather implements transport.Gatherer.
func (c *channel) Gather(memory []byte, m *transport.Meta) (n int, ok bool) {
	n, ok = c.out.gather(memory, m)
	if n > 0 {
		c.Flush()
	}
	return n, ok
}

// Sent implements transport.Gatherer.
func (c *channel) Sent() bool { return c.out.allSent() }

// Withdraw implements transport.Gatherer.
func (c *channel) Withdraw() bool { return c.out.withdraw(time.Now()) }

var _ transport.Gatherer = (*channel)(nil)

// gather sends a fragment of memory of the caller: a write of its head and of its payload.
func (q *outQueue) gather(b []byte, m *transport.Meta) (n int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unlend()
	q.settle()
	if q.way == nil || q.unmoved > 0 || q.gone || q.closed || len(b) == 0 {
		return 0, false
	}
	short := q.short() - headBytes
	q.wants = len(b) > short
	long := q.wants && len(q.grants) > 0
	from := q.way.a.use(b)
	if from == nil {
		return 0, false
	}
	if q.sent-q.freed >= mostFlight || !long && q.shorts-q.free >= shortSlots {
		from.done()
		return 0, true
	}
	room := short
	if long {
		room = longBytes - headBytes
	}
	if n = len(b); n > room {
		n = room &^ 63
	}
	at := int(q.sent%mostFlight) * headBytes
	e := sent{bytes: q.heads[at : at+headBytes : at+headBytes], from: from, rest: b[:n:n], long: long}
	h := head{number: q.number, wants: q.wants, waits: true, credit: q.channel.credit(q.way), meta: *m}
	h.put(e.bytes)
	q.number++
	q.inPlace++
	q.enqueue(e)
	return n, true
}

// allSent reports whether no memory of the sender is in flight, or nobody will take what is.
func (q *outQueue) allSent() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inPlace == 0 {
		return true
	}
	q.settle()
	return q.inPlace == 0 || (q.gone || q.channel.link.tcp.Err() != nil) && q.giveUp()
}

// giveUp ends the channel, and reports whether the adapter reads no memory of the sender.
func (q *outQueue) giveUp() bool {
	q.gone = true
	switch {
	case q.way == nil && q.broken != nil && !q.broken.ended.Load():
		return false
	case q.way != nil:
		for at := q.freed; at != q.posted; at++ {
			if e := &q.ring[at%mostFlight]; e.from != nil && e.write > q.way.done.Load() {
				return false
			}
		}
	}
	for at := q.freed; at != q.sent; at++ {
		if e := &q.ring[at%mostFlight]; e.from != nil {
			e.from.done()
			e.from, e.rest = nil, nil
		}
	}
	q.inPlace = 0
	return true
}

// withdraw is giveUp, and ends the connection if that takes too long.
func (q *outQueue) withdraw(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inPlace == 0 {
		return true
	}
	q.settle()
	if q.giveUp() {
		return true
	}
	switch {
	case q.withdrawn.IsZero():
		q.withdrawn = now
	case q.way != nil && now.Sub(q.withdrawn) > gatherPatience:
		q.way.fail(fault.New(fault.Aborted, "an operation has failed whose memory the adapter still reads"))
	}
	return false
}
