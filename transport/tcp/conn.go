package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// node makes a session or a channel a member of a connection's list of those with something to
// write.
type node struct {
	next    *node
	queued  atomic.Bool
	channel *channel // either channel or session is set
	session *session
}

// conn is an authenticated connection to a peer process.
type conn struct {
	f       *Fabric
	pair    *pair
	fd      int
	slot    int    // in the fabric's table
	remote  string // address and port
	who     string // host and pid of the peer
	binding [32]byte
	dialer  bool

	reading, writing atomic.Bool   // try-locks
	down             atomic.Bool   // fail was called; nothing is read or written any more
	gone             chan struct{} // closed when down
	finishing        atomic.Bool   // the fabric is closing: end this side's direction after all goodbyes
	background       atomic.Int32  // reasons to go on while no thread polls
	reader           reader        // guarded by reading
	writer           writer        // guarded by writing
	ready            atomic.Pointer[node]
	backlog          atomic.Bool // the socket took less than there is to write
	watch            watch

	mu       sync.Mutex
	sessions []*session               // by index; nil where the index is free
	waiting  map[sessionKey]*session  // not yet announced by the peer
	inbounds map[sessionKey]*incoming // announced by the peer, but Connect was not called
}

// incoming is a session that the peer has announced.
type incoming struct {
	opening opening
	session atomic.Pointer[session]
}

func newConn(p *pair, fd int, remote string, binding [32]byte) *conn {
	c := &conn{f: p.f, pair: p, fd: fd, remote: remote, who: p.peer.who(), binding: binding, dialer: !p.key.accept,
		gone: make(chan struct{}), waiting: map[sessionKey]*session{}, inbounds: map[sessionKey]*incoming{}}
	c.reader.staging = make([]byte, stagingBytes)
	return c
}

// progress reads and writes as much as it can without waiting.
func (c *conn) progress() bool {
	moved := false
	if c.reading.CompareAndSwap(false, true) {
		if !c.down.Load() {
			moved = c.receive()
		}
		c.reading.Store(false)
	}
	if c.pending() && c.flush() {
		moved = true
	}
	return moved
}

// errRetry means that the connection ended before the session was open; another connection may
// work.
var errRetry = errors.New("connection ended")

// open makes a session over c and waits until the peer has opened it too.
func (c *conn) open(ctx context.Context, spec transport.Session) (*session, error) {
	s, err := c.start(spec)
	if err != nil {
		return nil, err
	}
	c.background.Add(1)
	defer c.background.Add(-1)
	c.enqueue(&s.node)
	c.progress()
	c.f.poller.rearm(c)
	select {
	case <-s.opened:
	case <-c.gone:
	case <-c.f.ctx.Done():
		s.Close()
		return nil, errFabricClosed
	case <-ctx.Done():
	}
	c.mu.Lock()
	announced := s.announce
	c.mu.Unlock()
	switch e := s.err.Load(); {
	case announced && (e == nil || !errors.Is(e, fault.Mismatch)):
		return s, nil // even if the peer has left already: it may have sent something before
	case announced:
		s.Close()
		return nil, e
	case c.down.Load():
		return nil, errRetry
	}
	s.Close()
	return nil, contextFault(ctx, spec.Peer, fmt.Sprintf(
		"connected to %s, but the rank did not open session %x", c.where(), spec.ID))
}

// start adds a session to the tables.
func (c *conn) start(spec transport.Session) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down.Load() {
		return nil, errRetry
	}
	index := -1
	for i, s := range c.sessions {
		if s == nil {
			index = i
		} else if s.key() == (sessionKey{spec.ID, spec.Rank, spec.Peer}) && !s.closing.Load() {
			return nil, fault.Peer(fault.Invalid, spec.Peer, "tcp: session %x is open already", spec.ID)
		}
	}
	if index < 0 {
		if len(c.sessions) == maxSessions {
			return nil, fault.Peer(fault.System, spec.Peer,
				"tcp: %d sessions over one connection are the limit", maxSessions)
		}
		index = len(c.sessions)
		c.sessions = append(c.sessions, nil)
	}
	s := newSession(c, spec, uint32(index))
	c.sessions[index] = s
	if in := c.inbounds[s.key()]; in != nil {
		delete(c.inbounds, s.key())
		c.match(s, in)
	} else {
		c.waiting[s.key()] = s
	}
	return s, nil
}

// match joins a local session with the peer's announcement. c.mu is held.
func (c *conn) match(s *session, in *incoming) {
	if e := s.check(&in.opening); e != nil {
		s.fail(e)
	}
	in.session.Store(s)
	s.announce = true
	close(s.opened)
}

// announced handles an open frame. c.reading is held.
func (c *conn) announced(in *incoming) {
	o := &in.opening
	key := sessionKey{o.id, int(o.to), int(o.from)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.waiting[key]; s != nil {
		delete(c.waiting, key)
		c.match(s, in)
		return
	}
	c.inbounds[key] = in
}

// forget removes a closing session from the table of sessions that wait for the peer. Its index
// stays taken until the goodbye is written.
func (c *conn) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[s.key()] == s {
		delete(c.waiting, s.key())
	}
}

// unindex frees the index of a session whose goodbye is being written.
func (c *conn) unindex(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s.index] = nil
}

// left handles the peer's goodbye. c.reading is held.
func (c *conn) left(in *incoming) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := sessionKey{in.opening.id, int(in.opening.to), int(in.opening.from)}
	if c.inbounds[key] == in {
		delete(c.inbounds, key)
	}
	if s := in.session.Load(); s != nil {
		s.fail(fault.Peer(fault.PeerLeft, s.spec.Peer, "tcp: %s closed the link", c.where()))
	}
}

// violation reports a frame that the peer must not send.
type violation struct{ text string }

func (v *violation) Error() string { return v.text }

func violates(format string, args ...any) error { return &violation{fmt.Sprintf(format, args...)} }

// fail ends the connection. Only the first cause counts. Fragments that have arrived stay readable.
func (c *conn) fail(cause error) {
	if c.down.Swap(true) {
		return
	}
	shutdown(c.fd, true)
	c.mu.Lock()
	for _, s := range c.sessions {
		if s != nil {
			s.fail(c.reason(s.spec.Peer, cause))
		}
	}
	c.mu.Unlock()
	close(c.gone)
	c.f.drop(c)
	c.f.doorbell.Ring()
	go c.reap()
}

// reason returns the error that a session gets from the end of the connection.
func (c *conn) reason(peer int, cause error) *fault.Error {
	var v *violation
	var e *fault.Error
	switch {
	case errors.As(cause, &e):
		return e
	case errors.As(cause, &v):
		return fault.Peer(fault.Internal, peer,
			"tcp: %s broke the protocol, the connection was closed: %s", c.where(), v.text)
	case errors.Is(cause, io.EOF):
		return fault.Peer(fault.PeerLost, peer,
			"tcp: %s ended the connection without a goodbye; its process died or was killed", c.where())
	case errors.Is(cause, syscall.ETIMEDOUT):
		e = fault.Peer(fault.PeerLost, peer, "tcp: %s did not answer for %v; its host or the network is down",
			c.where(), c.f.opts.PeerTimeout)
	default:
		e = fault.Peer(fault.PeerLost, peer,
			"tcp: the connection to %s broke; its process or host died, or the network was cut", c.where())
	}
	e.Cause = cause
	return e
}

// reap closes the socket once no thread uses it any more.
func (c *conn) reap() {
	defer c.f.sockets.Done()
	for !c.reading.CompareAndSwap(false, true) {
		time.Sleep(100 * time.Microsecond)
	}
	for !c.writing.CompareAndSwap(false, true) {
		time.Sleep(100 * time.Microsecond)
	}
	// Both stay locked for good: from here on the number of the descriptor may be reused.
	c.f.poller.remove(c)
	c.f.opts.Track(c.fd, false)
	closeSocket(c.fd)
}
