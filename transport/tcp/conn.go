package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// node makes a session, a channel or a pair a member of a pair's list of those with something to
// write. One of the three is set.
type node struct {
	next    *node
	queued  atomic.Bool
	channel *channel
	session *session
	pair    *pair
}

// conn is an authenticated socket to a peer process.
type conn struct {
	f      *Fabric
	pair   *pair
	fd     int
	secure *secure // nil without TLS
	slot   int     // in the fabric's table
	local  string  // address and port of this side
	remote string  // of the peer
	who    string  // host and pid of the peer
	nonce  nonce   // identifies it on both sides

	reading, writing atomic.Bool   // try-locks
	down             atomic.Bool   // fail was called; nothing is read or written any more
	gone             chan struct{} // closed when down
	reaped           chan struct{} // closed when no thread reads or writes any more
	unresumed        atomic.Bool   // the peer has not said yet what has arrived there; counted in background
	healed           *healing      // what broke before; guarded by reading
	reader           reader        // guarded by reading
	writer           writer        // guarded by writing
	backlog          atomic.Bool   // the socket took less than there is to write
	left             atomic.Bool   // no thread may be polling: the fabric's goroutine writes the backlog
	watch            watch
	info             pathInfo // guarded by reading
}

func newConn(p *pair, fd int, nc net.Conn) *conn {
	c := &conn{f: p.f, pair: p, fd: fd, who: p.peer.who(), gone: make(chan struct{}), reaped: make(chan struct{})}
	if nc != nil {
		c.local, c.remote = nc.LocalAddr().String(), nc.RemoteAddr().String()
	}
	c.reader.staging = make([]byte, stagingBytes)
	return c
}

// where identifies the peer process in messages.
func (c *conn) where() string { return fmt.Sprintf("%s (%s)", c.remote, c.who) }

// path identifies both ends in messages.
func (c *conn) path() string { return c.local + "-" + c.remote }

// progress reads and writes as much as it can without waiting.
func (c *conn) progress() bool {
	moved := false
	if c.left.Load() {
		c.left.Store(false)
	}
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

// unattended returns the events for which the fabric's goroutine does what no other thread may do.
func (c *conn) unattended() (events uint32) {
	background := c.pair.background.Load() > 0
	if background {
		events = waitIn
	}
	if (background || c.left.Load()) && c.backlog.Load() {
		events |= waitOut
	}
	return events
}

// settled notes that the pair need not wait any longer for the peer's resumption.
func (c *conn) settled() {
	if c.unresumed.Swap(false) {
		c.pair.background.Add(-1)
	}
}

// fail ends the socket. Only the first cause counts. Fragments that have arrived stay readable.
func (c *conn) fail(cause error) {
	if c.down.Swap(true) {
		return
	}
	shutdown(c.fd, true)
	c.pair.broken(c, cause)
	c.settled()
	close(c.gone)
	c.f.drop(c)
	c.f.doorbell.Ring()
	go c.reap()
}

// reason returns the error that a session gets from the end of the socket.
func (c *conn) reason(peer int, cause error) *fault.Error {
	return reason(peer, c.where(), cause, c.f.opts.PeerTimeout)
}

func reason(peer int, where string, cause error, timeout time.Duration) *fault.Error {
	var v *violation
	var e *fault.Error
	switch {
	case errors.Is(cause, fault.Closed):
		return errFabricClosed
	case errors.As(cause, &e):
		named := *e
		named.Peer = peer
		return &named
	case errors.As(cause, &v):
		return fault.Peer(fault.Internal, peer,
			"tcp: %s broke the protocol, the connection was closed: %s", where, v.text)
	case errors.Is(cause, io.EOF):
		return fault.Peer(fault.PeerLost, peer,
			"tcp: %s ended the connection without a goodbye; its process died or was killed", where)
	case errors.Is(cause, syscall.ETIMEDOUT):
		e = fault.Peer(fault.PeerLost, peer, "tcp: %s did not answer for %v; its host or the network is down",
			where, timeout)
	default:
		e = fault.Peer(fault.PeerLost, peer,
			"tcp: the connection to %s broke; its process or host died, or the network was cut", where)
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
	close(c.reaped)
}
