package shm

import (
	"bytes"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
)

// link is this side of a session. After Close it stays in its process until the peer's bye if the
// peer may still read slots of the pool; the peer's release counters show which slots.
type link struct {
	process  *process
	session  transport.Session
	serial   uint64 // of this side's open
	theirs   uint64 // of the peer's open
	own      *mem.Segment
	peer     *mem.Segment
	window   *mem.Segment // the peer's, nil if there is none
	note     []byte       // the peer's
	channels []ring.Channel
	err      atomic.Pointer[fault.Error]

	// Guarded by the fabric's lock.
	opening *opening // nil once it is confirmed
	closed  bool     // by this side
	why     []byte   // what the bye says
	left    bool     // the peer no longer reads
	unsent  int      // control messages that have not been sent
	shared  []int    // the peer's descriptors that nobody has asked for
}

// newLink is called with the lock held.
func (p *process) newLink(w *opening, a *arrival, peer, window *mem.Segment) *link {
	l := &link{process: p, session: w.session, serial: w.serial, theirs: a.Serial,
		own: w.ring, peer: peer, window: window, opening: w}
	l.channels = ring.Open(w.session.Channels, ring.Ends{Own: l.own.Bytes(), Peer: peer.Bytes(),
		OwnSlot: w.slot, PeerSlot: int(a.Slot), Pool: p.fabric.pool, PeerPool: p.pool.Bytes(),
		Doorbell: p.doorbell, Claim: kernel.Claiming(), Broken: l.broken})
	p.refs++
	p.links[a.Serial] = l
	return l
}

var _ transport.Lender = (*link)(nil)

// Channel returns channel i.
func (l *link) Channel(i int) transport.Channel { return &l.channels[i] }

// Open returns true: the path is there.
func (l *link) Open() bool { return true }

// State returns that of a path through memory.
func (l *link) State() transport.LinkState { return transport.LinkState{} }

// Flushed returns true: what was published is there.
func (l *link) Flushed() bool { return true }

// Window returns the peer's window.
func (l *link) Window() []byte {
	if l.window == nil {
		return nil
	}
	return l.window.Bytes()
}

// Arena returns the registered memory of the peer's process.
func (l *link) Arena() []byte { return l.process.arena.Bytes() }

// Shared returns what the peer shares.
func (l *link) Shared() (note []byte, descriptors []int) {
	l.process.fabric.mu.Lock()
	defer l.process.fabric.mu.Unlock()
	descriptors, l.shared = l.shared, nil
	return bytes.Clone(l.note), descriptors
}

// Notify rings the doorbell of the peer's process.
func (l *link) Notify() { l.process.doorbell.Ring() }

// Err returns the reason why the link does not work, or nil.
func (l *link) Err() error {
	if err := l.err.Load(); err != nil {
		return err
	}
	return nil
}

// broken is called by a channel that has found an impossible value in the peer's memory.
func (l *link) broken(text string) {
	l.err.CompareAndSwap(nil, fault.Peer(fault.Internal, l.session.Peer,
		"shm: the memory of %s is damaged: %s", l.process.who(), text))
	l.process.fabric.doorbell.Ring()
}

// gone is called with the lock held when the peer no longer reads or writes.
func (l *link) gone(why *fault.Error) {
	l.err.CompareAndSwap(nil, why)
	l.left = true
	if l.closed {
		l.unmap()
	}
	l.process.fabric.doorbell.Ring()
}

// Close ends this side of the session.
func (l *link) Close() error { return l.Leave(nil) }

// Leave ends this side of the session and tells the peer why.
func (l *link) Leave(why []byte) error {
	f := l.process.fabric
	f.mu.Lock()
	if l.closed {
		f.mu.Unlock()
		return nil
	}
	l.why = why
	l.closeLocked()
	last := l.process.dead == nil && l.unsent == 0 // otherwise the bye follows the control messages
	f.mu.Unlock()
	if last {
		l.process.send(newBye(l.serial, why))
	}
	f.doorbell.Ring()
	return nil
}

func (l *link) closeLocked() {
	l.closed = true
	delete(l.process.fabric.links, l)
	l.err.CompareAndSwap(nil, fault.New(fault.Closed,
		"shm: rank %d has closed its link to rank %d", l.session.Rank, l.session.Peer))
	unread := 0
	for i := range l.channels {
		unread += l.channels[i].Close()
	}
	l.own.Free() // the peer has its own mapping
	l.freeWindow()
	l.closeShared()
	if unread == 0 || l.left {
		l.unmap()
	}
}

// unmap releases the peer's memory, once, and frees the slots that the peer has not read.
func (l *link) unmap() {
	for i := range l.channels {
		l.channels[i].Forget()
	}
	delete(l.process.links, l.theirs)
	l.peer.Free()
	l.freeWindow()
	l.closeShared()
	l.process.unref()
}

func (l *link) freeWindow() {
	if l.window != nil {
		l.window.Free()
	}
}

func (l *link) closeShared() {
	closeAll(l.shared)
	l.shared = nil
}
