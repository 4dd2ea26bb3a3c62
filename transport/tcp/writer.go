package tcp

import (
	"sync/atomic"
	"syscall"

	"github.com/goccl/goccl/transport"
)

// writer turns the queued frames into the byte stream of this side.
type writer struct {
	rest     []byte   // of the frame that is being written
	of       *session // whose fragment was written last
	after    func()   // nil on the hot path: called when the frame has been written
	scratch  [headerBytes + transport.MaxWhy]byte
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

// flush writes what the sockets take, unless another thread is writing: that thread then writes for
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
				c.rearm()
			}
			break
		}
		c.left.Store(false)
	}
	return moved
}

// send writes frames until none are left (full is false) or the sockets take no more. The first
// socket has all it takes before the others are tried: several sockets hold few bytes that have not
// left (addSocket), so each carries what its path does.
func (c *conn) send() (moved, full bool) {
	sockets := c.all()
	if len(sockets) == 1 {
		moved, full = c.main.send()
		c.main.blocked.Store(full)
		return moved, full
	}
	if c.f.shuffle != nil {
		sockets = c.f.shuffle(sockets)
	}
	// A socket may have met a frame that another thread queued after the socket for it was tried.
	left := func() bool { return !full && c.pair.head != nil && !c.unresumed.Load() }
	for again := true; again; again = c.fastest.over.Load() || left() {
		c.choose()
		full = false
		for _, k := range sockets {
			m, f := k.send()
			k.blocked.Store(f)
			moved, full = moved || m, full || f
		}
	}
	return moved, full
}

// send is conn.send for one socket.
func (k *socket) send() (moved, full bool) {
	w := &k.writer
	for {
		if errno := k.leave(); errno != 0 && again(errno) {
			return moved, true
		} else if errno != 0 {
			k.cannotSend(errno)
		}
		if len(w.rest) == 0 && !k.nextFrame() {
			return moved, false
		}
		if w.failed.Load() != 0 {
			w.rest = nil // the peer will not read it; the queues must drain all the same
			k.frameWritten()
			continue
		}
		n, errno := k.put(w.rest)
		if errno != 0 {
			if again(errno) {
				return moved, true
			}
			k.cannotSend(errno)
			continue
		}
		moved = true
		w.rest = w.rest[n:]
		if len(w.rest) > 0 {
			return moved, true
		}
		k.frameWritten()
	}
}

// put sends bytes, or encrypts them for leave.
func (k *socket) put(b []byte) (int, syscall.Errno) {
	if k.secure == nil {
		return sendFrom(k.fd, b)
	}
	if k.secure.write(b) != nil {
		return 0, syscall.EPROTO // reading has met the end of TLS
	}
	k.conn.encrypted.Add(1)
	return len(b), 0
}

// leave sends what is encrypted.
func (k *socket) leave() syscall.Errno {
	if k.secure == nil || k.writer.failed.Load() != 0 {
		return 0
	}
	return k.secure.flush()
}

// cannotSend notes that nothing more can be sent. Data may still lie in the receive buffer, so the
// reader ends the connection.
func (k *socket) cannotSend(errno syscall.Errno) {
	k.writer.failed.Store(uint32(errno))
	shutdown(k.fd, true)
	if k.over.Load() {
		k.conn.fail(errno)
	}
}

func (k *socket) frameWritten() {
	if f := k.writer.after; f != nil {
		k.writer.after = nil
		f()
	}
}

// nextFrame sets rest to the next frame. It returns false if there is none.
func (k *socket) nextFrame() bool {
	c, p, w := k.conn, k.conn.pair, &k.writer
	if c.unresumed.Load() {
		return false
	}
	first := k == c.main
	for {
		p.collect()
		n := p.head
		if n == nil {
			if first && p.finishing.Load() && !w.finished.Load() && !p.busy() && c.delivered() {
				w.finished.Store(true)
				shutdown(k.fd, false)
			}
			return false
		}
		if !first && !(n.roams() && k.carries()) || c.several() && !k.suits(n) {
			return false
		}
		if p.head = n.next; p.head == nil {
			p.tail = nil
		}
		n.next = nil
		// A thread that adds something from here on queues n again.
		n.queued.Store(false)
		if !c.main.writer.finished.Load() && k.frameOf(n) {
			return true
		}
	}
}

// roams reports whether frames may leave by any socket: those of a channel whose session the peer
// knows. All others keep their order.
func (n *node) roams() bool { return n.channel != nil && n.channel.session.known.Load() }

// carries notes that a further socket is used. It returns false if the peer has ended it.
func (k *socket) carries() bool {
	k.carried.Store(true)
	return !k.over.Load()
}

func (k *socket) frameOf(n *node) bool {
	switch {
	case n.channel != nil:
		return k.channelFrame(n.channel)
	case n.session != nil:
		return k.sessionFrame(n.session)
	}
	return k.pairFrame()
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
func (k *socket) channelFrame(ch *channel) bool {
	s := ch.session
	if s.removed.Load() {
		return false
	}
	if !s.openSent || !s.ready.Load() {
		s.expect(k.conn)
		return false // it is queued again when both sides have opened the session
	}
	w, p := &k.writer, k.conn.pair
	out, in := &ch.out, &ch.in
	at := out.started.Load()
	waiting := out.committed.Load() - at
	due := in.due.Swap(false)
	released := in.released.Load()
	switch {
	case waiting > 0:
		w.rest, w.of = out.ring.at(at).frame(), s
		k.stamp(s.index, released)
		out.started.Store(at + 1)
		if waiting > 1 {
			p.requeue(&ch.node)
		} else if s.closing.Load() {
			p.requeue(&s.node) // its goodbye may have waited for this
		}
	case due && !s.closing.Load():
		k.headerOnly(header{kind: kindCredit, channel: ch.index, number: in.scale.Load()})
		k.stamp(s.index, released)
	default:
		return false
	}
	in.advertised.Store(released)
	return true
}

// stamp fills in the fields that are known only when a frame is written.
func (k *socket) stamp(session, credit uint32) {
	stamp(k.writer.rest, session, credit)
	k.seal()
}

// seal adds checksums to a frame, if this side has them.
func (k *socket) seal() {
	if k.conn.f.opts.Checksum {
		seal(k.writer.rest)
	}
}

// headerOnly makes a frame without payload.
func (k *socket) headerOnly(h header) {
	w := &k.writer
	w.rest = w.scratch[:headerBytes]
	h.put(w.rest)
	k.seal()
}

// sessionFrame makes the open or goodbye frame of a session, whichever is due.
func (k *socket) sessionFrame(s *session) bool {
	w := &k.writer
	switch {
	case s.removed.Load():
		return false
	case !s.openSent:
		k.conn.pair.index(s)
		h := header{kind: kindOpen, session: s.index, length: openBytes}
		o := s.opening()
		w.rest = w.scratch[:headerBytes+openBytes]
		h.put(w.rest)
		o.put(w.rest[headerBytes:])
		k.seal()
		for i := range s.channels {
			if q := &s.channels[i].out; q.started.Load() != q.committed.Load() {
				k.conn.pair.requeue(&s.channels[i].node)
			}
		}
		if s.closing.Load() {
			k.conn.pair.requeue(&s.node)
		}
	case s.closing.Load() && !s.byeSent && (s.drained() && !s.unsent() || s.refused()):
		s.byeSent = true
		h := header{kind: kindGoodbye, session: s.index, number: s.started()}
		if why := s.why.Load(); why != nil {
			h.length = uint32(copy(w.scratch[headerBytes:], *why))
		}
		w.rest = w.scratch[:headerBytes+h.length]
		h.put(w.rest)
		k.seal()
		w.after = func() { s.pending(false) }
	default:
		return false
	}
	return true
}

// pairFrame makes the answer to a goodbye.
func (k *socket) pairFrame() bool {
	index, found, more := k.conn.pair.answers()
	if !found {
		return false
	}
	if more {
		k.conn.pair.requeue(&k.conn.pair.node)
	}
	k.headerOnly(header{kind: kindGone, session: index})
	return true
}
