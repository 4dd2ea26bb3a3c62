package shm

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
)

// link is this side of a session. Between Close and the peer's bye it stays in its process: the
// peer may still read slots of the pool, and its release counters say which.
type link struct {
	process  *process
	session  transport.Session
	serial   uint64 // of this side's open
	theirs   uint64 // of the peer's
	own      *mem.Segment
	peer     *mem.Segment
	window   *mem.Segment // the peer's, nil if there is none
	channels []ring.Channel
	err      atomic.Pointer[fault.Error]

	// With the fabric's lock.
	opening *opening // until it is confirmed
	closed  bool     // by this side
	left    bool     // the peer reads no more
}

// newLink is called with the lock.
func (p *process) newLink(w *opening, a *arrival, peer, window *mem.Segment) *link {
	l := &link{process: p, session: w.session, serial: w.serial, theirs: a.Serial, own: w.ring, peer: peer, window: window, opening: w}
	l.channels = ring.Open(w.session.Channels, ring.Ends{Own: l.own.Bytes(), Peer: peer.Bytes(), OwnSlot: w.slot, PeerSlot: int(a.Slot),
		Pool: p.fabric.pool, PeerPool: p.pool.Bytes(), Bell: p.bell, Broken: l.broken})
	p.refs++
	p.links[a.Serial] = l
	return l
}

// Channel returns channel i.
func (l *link) Channel(i int) transport.Channel { return &l.channels[i] }

// Window is the peer's window.
func (l *link) Window() []byte {
	if l.window == nil {
		return nil
	}
	return l.window.Bytes()
}

// Arena is the registered memory of the peer's process.
func (l *link) Arena() []byte { return l.process.arena.Bytes() }

// Notify rings the bell of the peer's process.
func (l *link) Notify() { l.process.bell.Ring() }

// Err is why the link does not work, or nil.
func (l *link) Err() error {
	if err := l.err.Load(); err != nil {
		return err
	}
	return nil
}

// broken is called by a channel that has found nonsense in the peer's memory.
func (l *link) broken(text string) {
	l.err.CompareAndSwap(nil, fault.Peer(fault.Internal, l.session.Peer, "shm: the memory of process %d is damaged: %s", l.process.pid, text))
	l.process.fabric.bell.Ring()
}

// gone is called with the lock when the peer reads and writes no more.
func (l *link) gone(why *fault.Error) {
	l.err.CompareAndSwap(nil, why)
	l.left = true
	if l.closed {
		l.unmap()
	}
	l.process.fabric.bell.Ring()
}

// Close ends this side.
func (l *link) Close() error {
	f := l.process.fabric
	f.mu.Lock()
	if l.closed {
		f.mu.Unlock()
		return nil
	}
	l.closeLocked()
	dead := l.process.dead != nil
	f.mu.Unlock()
	if !dead {
		l.process.send(&bye{l.serial})
	}
	f.bell.Ring()
	return nil
}

func (l *link) closeLocked() {
	l.closed = true
	delete(l.process.fabric.links, l)
	l.err.CompareAndSwap(nil, fault.New(fault.Closed, "shm: rank %d has closed its link to rank %d", l.session.Rank, l.session.Peer))
	unread := 0
	for i := range l.channels {
		unread += l.channels[i].Close()
	}
	l.own.Free() // the peer has a mapping of its own
	l.freeWindow()
	if unread == 0 || l.left {
		l.unmap()
	}
}

// unmap gives up the peer's memory, once, after which the slots it has not read are free.
func (l *link) unmap() {
	for i := range l.channels {
		l.channels[i].Forget()
	}
	delete(l.process.links, l.theirs)
	l.peer.Free()
	l.freeWindow()
	l.process.unref()
}

func (l *link) freeWindow() {
	if l.window != nil {
		l.window.Free()
	}
}
