package tcp

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
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

// conn is an authenticated connection to a peer process. It has one socket, which may be joined by
// others that carry fragments and credit too.
type conn struct {
	f     *Fabric
	pair  *pair
	who   string // host and pid of the peer
	nonce nonce  // identifies it on both sides
	main  *socket

	mu      sync.Mutex
	sockets atomic.Pointer[[]*socket] // the main one first; it grows under mu until down

	reading, writing atomic.Bool   // try-locks, of all sockets
	down             atomic.Bool   // fail was called; nothing is read or written any more
	gone             chan struct{} // closed when down
	reaped           chan struct{} // closed when no thread reads or writes any more
	unresumed        atomic.Bool   // the peer has not said yet what has arrived there; counted in background
	healed           *healing      // what broke before; guarded by reading
	fastest          *socket       // guarded by writing
	backlog          atomic.Bool   // the sockets took less than there is to write
	encrypted        atomic.Uint32 // frames; credit for them comes later, also for the race detector
	left             atomic.Bool   // no thread may be polling: the fabric's goroutine writes the backlog
	info             pathInfo      // guarded by reading
}

// socket is one of the sockets of a connection.
type socket struct {
	conn    *conn
	fd      int
	secure  *secure     // nil without TLS
	slot    int         // in the fabric's table
	local   string      // address and port of this side
	from    string      // its interface, and local
	remote  string      // of the peer
	reader  reader      // guarded by conn.reading
	writer  writer      // guarded by conn.writing
	carried atomic.Bool // a further socket has carried a frame of this side
	over    atomic.Bool // the peer has ended a further socket: it carries nothing more
	paced   atomic.Bool // the system's congestion control paces it, and its path seems long
	blocked atomic.Bool // it took less than there was to write
	watch   watch
	gauge   gauge // guarded by conn.writing
}

func newConn(p *pair, fd int, nc *stream) *conn {
	c := &conn{f: p.f, pair: p, who: p.peer.who(), gone: make(chan struct{}), reaped: make(chan struct{})}
	c.main = newSocket(c, fd, nc)
	c.fastest = c.main
	c.sockets.Store(&[]*socket{c.main})
	return c
}

// newSocket returns a socket of c. nc is what it was before it was taken, or nil.
func newSocket(c *conn, fd int, nc *stream) *socket {
	k := &socket{conn: c, fd: fd}
	k.reader.staging = make([]byte, stagingBytes)
	if nc != nil {
		k.local, k.remote, k.secure = nc.LocalAddr().String(), nc.RemoteAddr().String(), nc.secure
		k.from = c.f.self.named(k.local)
		k.paced.Store(c.f.unpace(fd))
	}
	if k.secure != nil {
		k.secure.attach(fd)
	}
	return k
}

// all returns the sockets, the main one first.
func (c *conn) all() []*socket { return *c.sockets.Load() }

// others returns the sockets that have joined.
func (c *conn) others() []*socket { return c.all()[1:] }

// several reports whether frames may overtake each other.
func (c *conn) several() bool { return len(c.all()) > 1 }

// where identifies the peer process in messages.
func (c *conn) where() string { return fmt.Sprintf("%s (%s)", c.main.remote, c.who) }

// path identifies both ends in messages.
func (c *conn) path() string { return c.main.local + "-" + c.main.remote }

// progress reads and writes as much as it can without waiting.
func (k *socket) progress() bool {
	c := k.conn
	moved := false
	if c.left.Load() {
		c.left.Store(false)
	}
	if c.reading.CompareAndSwap(false, true) {
		if !c.down.Load() {
			moved = k.receive()
		}
		c.reading.Store(false)
	}
	if c.pending() && c.flush() {
		moved = true
	}
	return moved
}

// check makes the writer look for frames that are not queued.
func (c *conn) check() {
	c.main.blocked.Store(true)
	c.backlog.Store(true)
}

// rearm has the fabric's goroutine continue to wait for what unattended says.
func (c *conn) rearm() {
	for _, k := range c.all() {
		c.f.poller.rearm(k)
	}
}

// unattended returns the events for which the fabric's goroutine does what no other thread may do.
func (k *socket) unattended() (events uint32) {
	c := k.conn
	background := c.pair.background.Load() > 0
	if background {
		events = waitIn
	}
	if (background || c.left.Load()) && k.blocked.Load() {
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

// fail ends the connection. Only the first cause counts. Fragments that have arrived stay readable.
func (c *conn) fail(cause error) {
	if c.down.Swap(true) {
		return
	}
	c.mu.Lock() // from here on no socket joins
	c.mu.Unlock()
	for _, k := range c.all() {
		shutdown(k.fd, true)
	}
	c.pair.broken(c, cause)
	c.settled()
	close(c.gone)
	for _, k := range c.all() {
		c.f.drop(k)
	}
	c.f.doorbell.Ring()
	go c.reap()
}

// reason returns the error that a session gets from the end of the socket.
func (c *conn) reason(peer int, cause error) *fault.Error {
	return reason(peer, c.where(), cause, c.f.opts.PeerTimeout)
}

func reason(peer int, where string, cause error, timeout time.Duration) *fault.Error {
	var v *protocolError
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
			"tcp: %s ended the connection without a goodbye; its process may have died or been killed", where)
	case errors.Is(cause, syscall.ETIMEDOUT):
		e = fault.Peer(fault.PeerLost, peer, "tcp: %s did not answer for %v; its host or the network may be down",
			where, timeout)
	default:
		e = fault.Peer(fault.PeerLost, peer,
			"tcp: the connection to %s broke; its process or host may have died, or the network been cut", where)
	}
	e.Cause = cause
	return e
}

// reap closes the sockets once no thread uses them any more.
func (c *conn) reap() {
	for !c.reading.CompareAndSwap(false, true) {
		time.Sleep(100 * time.Microsecond)
	}
	for !c.writing.CompareAndSwap(false, true) {
		time.Sleep(100 * time.Microsecond)
	}
	// Both stay locked for good: from here on the numbers of the descriptors may be reused.
	for _, k := range c.all() {
		c.f.poller.remove(k)
		c.f.opts.Track(k.fd, false)
		closeSocket(k.fd)
		c.f.sockets.Done()
	}
	close(c.reaped)
}

// look returns the shortest round trip so far, and whether the kernel waits for an answer to what
// it has sent again, or to its question whether an idle peer is there. So a silent host is found
// before the kernel gives it up.
func (c *conn) look() (trip time.Duration, silent bool) {
	for !c.reading.CompareAndSwap(false, true) {
		if c.down.Load() {
			return 0, false
		}
		runtime.Gosched()
	}
	defer c.reading.Store(false)
	if c.down.Load() {
		return 0, false
	}
	trip, _ = c.f.trips(c.main.fd, &c.info)
	return trip, unanswered(c.main.fd, &c.info)
}

// delivered reports whether all that the further sockets were given has reached the peer's host.
// The writing lock is held.
func (c *conn) delivered() bool {
	for _, k := range c.others() {
		if len(k.writer.rest) > 0 || unacknowledged(k.fd) > 0 {
			return false
		}
	}
	return true
}
