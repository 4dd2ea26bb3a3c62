package tcp

import (
	"sync/atomic"
	"syscall"
)

// writer turns the queued frames into the byte stream of this side.
type writer struct {
	rest     []byte   // of the frame that is being written
	of       *session // whose fragment was written last
	after    func()   // nil on the hot path: called when the frame has been written
	scratch  [headerBytes + openBytes]byte
	finished atomic.Bool   // this side's direction was ended
	failed   atomic.Uint32 // the error number; the reader still reads what has arrived
}

// push notes that n has something to write. Any thread may call it.
func (p *pair) push(n *node) {
	if n.queued.Swap(true) {
		return
	}
	for {
		old := p.ready.Load()
		n.next = old
		if p.ready.CompareAndSwap(old, n) {
			return
		}
	}
}

// enqueue is push, and writes if there is a socket. Otherwise one is made.
func (p *pair) enqueue(n *node) {
	p.push(n)
	if c := p.live.Load(); c != nil {
		c.flush()
	} else {
		p.want()
	}
}

// pending reports whether there is something to write. Until the peer has said what has arrived
// there, this is only what this side says of itself.
func (c *conn) pending() bool {
	return c.backlog.Load() || c.pair.ready.Load() != nil && !c.unresumed.Load()
}

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
			c.f.full.Store(true)
			if !had {
				// A thread may have gone to sleep without waiting for the socket, because this
				// thread was about to write.
				c.f.doorbell.Ring()
			}
			if c.pair.background.Load() > 0 {
				c.f.poller.rearm(c)
			}
			break
		}
		c.left.Store(false)
	}
	return moved
}

// send writes frames until none are left (full is false) or the socket takes no more.
func (c *conn) send() (moved, full bool) {
	w := &c.writer
	for {
		if errno := c.leave(); errno != 0 && again(errno) {
			return moved, true
		} else if errno != 0 {
			c.cannotSend(errno)
		}
		if len(w.rest) == 0 && !c.nextFrame() {
			return moved, false
		}
		if w.failed.Load() != 0 {
			w.rest = nil // the peer will not read it; the queues must drain all the same
			c.frameWritten()
			continue
		}
		n, errno := c.put(w.rest)
		if errno != 0 {
			if again(errno) {
				return moved, true
			}
			c.cannotSend(errno)
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

// put sends bytes, or encrypts them for leave.
func (c *conn) put(b []byte) (int, syscall.Errno) {
	if c.secure == nil {
		return sendFrom(c.fd, b)
	}
	if c.secure.write(b) != nil {
		return 0, syscall.EPROTO // reading has met the end of TLS
	}
	return len(b), 0
}

// leave sends what is encrypted.
func (c *conn) leave() syscall.Errno {
	if c.secure == nil || c.writer.failed.Load() != 0 {
		return 0
	}
	return c.secure.flush()
}

// cannotSend notes that nothing more can be sent. Data may still lie in the receive buffer, so the
// reader ends the connection.
func (c *conn) cannotSend(errno syscall.Errno) {
	c.writer.failed.Store(uint32(errno))
	shutdown(c.fd, true)
}

func (c *conn) frameWritten() {
	if f := c.writer.after; f != nil {
		c.writer.after = nil
		f()
	}
}

// nextFrame sets rest to the next frame. It returns false if there is none.
func (c *conn) nextFrame() bool {
	p, w := c.pair, &c.writer
	if c.unresumed.Load() {
		return false
	}
	for {
		p.collect()
		n := p.head
		if n == nil {
			if p.finishing.Load() && !w.finished.Load() && !p.busy() {
				w.finished.Store(true)
				shutdown(c.fd, false)
			}
			return false
		}
		if p.head = n.next; p.head == nil {
			p.tail = nil
		}
		n.next = nil
		// A thread that adds something from here on queues n again.
		n.queued.Store(false)
		if !w.finished.Load() && c.frameOf(n) {
			return true
		}
	}
}

func (c *conn) frameOf(n *node) bool {
	switch {
	case n.channel != nil:
		return c.channelFrame(n.channel)
	case n.session != nil:
		return c.sessionFrame(n.session)
	}
	return c.pairFrame()
}

// collect moves the nodes queued meanwhile to the end of the writer's own list.
func (p *pair) collect() {
	if p.ready.Load() == nil {
		return
	}
	var first *node
	newest := p.ready.Swap(nil)
	for n := newest; n != nil; {
		next := n.next
		n.next = first
		first, n = n, next
	}
	if p.tail == nil {
		p.head = first
	} else {
		p.tail.next = first
	}
	p.tail = newest
}

// requeue puts n at the end of the list, unless it is queued already.
func (p *pair) requeue(n *node) {
	if n.queued.Swap(true) {
		return
	}
	if p.tail == nil {
		p.head = n
	} else {
		p.tail.next = n
	}
	p.tail = n
}

// channelFrame makes the next frame of a channel: a fragment, or credit alone.
func (c *conn) channelFrame(ch *channel) bool {
	s := ch.session
	if s.removed.Load() {
		return false
	}
	if !s.openSent || !s.ready.Load() {
		s.expect(c)
		return false // it is queued again when both sides have opened the session
	}
	w, p := &c.writer, c.pair
	out, in := &ch.out, &ch.in
	at := out.started.Load()
	waiting := out.committed.Load() - at
	due := in.due.Swap(false)
	released := in.released.Load()
	switch {
	case waiting > 0:
		w.rest, w.of = out.ring.at(at).frame(), s
		c.stamp(s.index, released)
		out.started.Store(at + 1)
		if waiting > 1 {
			p.requeue(&ch.node)
		} else if s.closing.Load() {
			p.requeue(&s.node) // its goodbye may have waited for this
		}
	case due && !s.closing.Load():
		c.headerOnly(header{kind: kindCredit, channel: ch.index, number: in.scale.Load()})
		c.stamp(s.index, released)
	default:
		return false
	}
	in.advertised.Store(released)
	return true
}

// stamp fills in the fields that are known only when a frame is written.
func (c *conn) stamp(session, credit uint32) {
	stamp(c.writer.rest, session, credit)
	c.seal()
}

// seal adds checksums to a frame, if this side has them.
func (c *conn) seal() {
	if c.f.opts.Checksum {
		seal(c.writer.rest)
	}
}

// headerOnly makes a frame without payload.
func (c *conn) headerOnly(h header) {
	w := &c.writer
	w.rest = w.scratch[:headerBytes]
	h.put(w.rest)
	c.seal()
}

// sessionFrame makes the open or goodbye frame of a session, whichever is due.
func (c *conn) sessionFrame(s *session) bool {
	w := &c.writer
	switch {
	case s.removed.Load():
		return false
	case !s.openSent:
		c.pair.index(s)
		h := header{kind: kindOpen, session: s.index, length: openBytes}
		o := s.opening()
		w.rest = w.scratch[:]
		h.put(w.rest)
		o.put(w.rest[headerBytes:])
		c.seal()
		for i := range s.channels {
			if q := &s.channels[i].out; q.started.Load() != q.committed.Load() {
				c.pair.requeue(&s.channels[i].node)
			}
		}
		if s.closing.Load() {
			c.pair.requeue(&s.node)
		}
	case s.closing.Load() && !s.byeSent && (s.drained() || s.refused()):
		s.byeSent = true
		c.headerOnly(header{kind: kindGoodbye, session: s.index})
		w.after = func() { s.pending(false) }
	default:
		return false
	}
	return true
}

// pairFrame makes the answer to a goodbye.
func (c *conn) pairFrame() bool {
	index, found, more := c.pair.answers()
	if !found {
		return false
	}
	if more {
		c.pair.requeue(&c.pair.node)
	}
	c.headerOnly(header{kind: kindGone, session: index})
	return true
}
