package tcp

import (
	"sync/atomic"
)

// writer turns the queued frames into the byte stream of this side.
type writer struct {
	head, tail *node    // taken from conn.ready, oldest first
	rest       []byte   // of the frame that is being written
	of         *session // whose fragment was written last
	after      func()   // nil on the hot path: called when the frame has been written
	scratch    [headerBytes + openBytes]byte
	seq        uint64
	finished   atomic.Bool   // this side's direction was ended
	failed     atomic.Uint32 // the error number; the reader still reads what has arrived
}

// enqueue notifies the writer that n has something to write. Any thread may call it.
func (c *conn) enqueue(n *node) {
	if n.queued.Swap(true) {
		return
	}
	for {
		old := c.ready.Load()
		n.next = old
		if c.ready.CompareAndSwap(old, n) {
			return
		}
	}
}

func (c *conn) pending() bool { return c.backlog.Load() || c.ready.Load() != nil }

// flush writes what the socket takes, unless another thread is writing: that thread then writes for
// this one too.
func (c *conn) flush() bool {
	moved := false
	for c.pending() && c.writing.CompareAndSwap(false, true) {
		full := true
		had := c.backlog.Load()
		if !c.down.Load() {
			var m bool
			m, full = c.send()
			moved = moved || m
		}
		c.backlog.Store(full && !c.down.Load())
		c.writing.Store(false)
		if full {
			if !had {
				// A thread may have gone to sleep without waiting for the socket, because this
				// thread was about to write.
				c.f.doorbell.Ring()
			}
			if c.background.Load() > 0 {
				c.f.poller.rearm(c)
			}
			break
		}
	}
	return moved
}

// send writes frames until none are left (full is false) or the socket takes no more.
func (c *conn) send() (moved, full bool) {
	w := &c.writer
	for {
		if len(w.rest) == 0 && !c.nextFrame() {
			return moved, false
		}
		if w.failed.Load() != 0 {
			w.rest = nil // the peer will not read it; the queues must drain all the same
			c.frameWritten()
			continue
		}
		n, errno := sendFrom(c.fd, w.rest)
		if errno != 0 {
			if again(errno) {
				return moved, true
			}
			// Data may still lie in the receive buffer, so the reader ends the connection.
			w.failed.Store(uint32(errno))
			shutdown(c.fd, true)
			continue
		}
		moved = true
		w.rest = w.rest[n:]
		if len(w.rest) > 0 {
			return moved, true
		}
		c.frameWritten()
	}
}

func (c *conn) frameWritten() {
	if f := c.writer.after; f != nil {
		c.writer.after = nil
		f()
	}
}

// nextFrame sets rest to the next frame. It returns false if there is none.
func (c *conn) nextFrame() bool {
	w := &c.writer
	for {
		c.collect()
		n := w.head
		if n == nil {
			if c.finishing.Load() && !w.finished.Load() && !c.busy() {
				w.finished.Store(true)
				shutdown(c.fd, false)
			}
			return false
		}
		if w.head = n.next; w.head == nil {
			w.tail = nil
		}
		n.next = nil
		// A thread that adds something from here on queues n again.
		n.queued.Store(false)
		if n.channel != nil && c.channelFrame(n.channel) || n.session != nil && c.sessionFrame(n.session) {
			return true
		}
	}
}

// collect moves the nodes queued meanwhile to the end of the writer's own list.
func (c *conn) collect() {
	if c.ready.Load() == nil {
		return
	}
	w := &c.writer
	var first *node
	newest := c.ready.Swap(nil)
	for n := newest; n != nil; {
		next := n.next
		n.next = first
		first, n = n, next
	}
	if w.tail == nil {
		w.head = first
	} else {
		w.tail.next = first
	}
	w.tail = newest
}

// requeue puts n at the end of the list, unless it is queued already.
func (w *writer) requeue(n *node) {
	if n.queued.Swap(true) {
		return
	}
	if w.tail == nil {
		w.head = n
	} else {
		w.tail.next = n
	}
	w.tail = n
}

// channelFrame makes the next frame of a channel: a fragment, or credit alone.
func (c *conn) channelFrame(ch *channel) bool {
	w := &c.writer
	out, in := &ch.out, &ch.in
	at := out.started.Load()
	waiting := out.committed.Load() - at
	due := in.due.Swap(false)
	released := in.released.Load()
	switch {
	case waiting > 0:
		w.rest, w.of = out.ring[at%maxFragments].frame(), ch.session
		c.stamp(in, released)
		out.started.Store(at + 1)
		if waiting > 1 {
			w.requeue(&ch.node)
		} else if ch.session.closing.Load() {
			w.requeue(&ch.session.node) // its goodbye may have waited for this
		}
	case due && !ch.session.closing.Load():
		h := header{kind: kindCredit, channel: ch.index, session: ch.session.index}
		w.rest = w.scratch[:headerBytes]
		h.put(w.rest)
		c.stamp(in, released)
	default:
		return false
	}
	return true
}

// stamp fills in the fields that are known only when a frame is written.
func (c *conn) stamp(in *inQueue, released uint32) {
	w := &c.writer
	putStamp(w.rest, released, w.seq)
	in.advertised.Store(released)
	w.seq++
}

// sessionFrame makes the open or goodbye frame of a session, whichever is due.
func (c *conn) sessionFrame(s *session) bool {
	w := &c.writer
	switch {
	case !s.openSent:
		s.openSent = true
		h := header{kind: kindOpen, session: s.index, length: openBytes, seq: w.seq}
		o := s.opening()
		w.rest = w.scratch[:]
		h.put(w.rest)
		o.put(w.rest[headerBytes:])
		if s.closing.Load() {
			w.requeue(&s.node)
		}
	case s.closing.Load() && !s.byeSent && s.drained():
		s.byeSent = true
		h := header{kind: kindGoodbye, session: s.index, seq: w.seq}
		w.rest = w.scratch[:headerBytes]
		h.put(w.rest)
		c.unindex(s)
		w.after = func() { c.background.Add(-1) }
	default:
		return false
	}
	w.seq++
	return true
}

// busy reports whether a session has not sent its goodbye yet.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		if s != nil {
			return true
		}
	}
	return false
}
