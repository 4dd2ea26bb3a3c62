package inproc

import (
	"bytes"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
)

// link is one end of a session.
type link struct {
	fabric   *Fabric
	session  transport.Session
	channels []ring.Channel
	other    *link
	err      atomic.Pointer[fault.Error]

	// Guarded by the fabric's lock.
	closed bool
	shared []int // copies of the other end's descriptors that nobody has asked for
}

// join makes both ends of a session. It is called with the lock held.
func (f *Fabric) join(s, o transport.Session) (*link, *link) {
	a, b := &link{fabric: f, session: s}, &link{fabric: f, session: o}
	a.other, b.other, a.shared, b.shared = b, a, o.Share, s.Share
	memoryA, memoryB := alignedMemory(s.Channels*ring.ChannelBytes), alignedMemory(s.Channels*ring.ChannelBytes)
	ends := ring.Ends{Own: memoryA, Peer: memoryB, OwnSlot: ring.SlotBytes, PeerSlot: ring.SlotBytes,
		Pool: f.pool, PeerPool: f.block.Bytes(), Doorbell: f.doorbell, Claim: kernel.Claiming(), Broken: a.broken}
	a.channels = ring.Open(s.Channels, ends)
	ends.Own, ends.Peer, ends.Broken = memoryB, memoryA, b.broken
	b.channels = ring.Open(s.Channels, ends)
	for _, l := range []*link{a, b} {
		if l.session.Window != nil {
			l.session.Window.Retain() // for the other end, since the owner may close first
		}
	}
	f.links[a], f.links[b] = struct{}{}, struct{}{}
	return a, b
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
	if w := l.other.session.Window; w != nil {
		return w.Bytes()
	}
	return nil
}

// Arena returns the registered memory of the process.
func (l *link) Arena() []byte {
	if l.fabric.Arena == nil {
		return nil
	}
	return l.fabric.Arena().Bytes()
}

// Notify rings the doorbell of this process.
func (l *link) Notify() { l.fabric.doorbell.Ring() }

// Err returns the reason why the link does not work, or nil.
func (l *link) Err() error {
	if err := l.err.Load(); err != nil {
		return err
	}
	return nil
}

// Tell sends a control message to the other end.
func (l *link) Tell(message []byte) bool {
	f := l.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.err.Load() != nil || !f.told.Add(l.other, message) {
		return false
	}
	if !f.telling {
		f.telling = true
		f.running.Go(f.tell)
	}
	return true
}

// tell hands out control messages until there are none.
func (f *Fabric) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		l, message, number, ok := f.told.Next(func(*link) bool { return true })
		if !ok {
			f.telling = false
			return
		}
		if handler := l.session.Control; handler != nil && !l.closed {
			f.mu.Unlock()
			handler(message)
			f.mu.Lock()
		}
		f.told.Acknowledge(number)
	}
}

func (l *link) broken(text string) {
	l.err.CompareAndSwap(nil, fault.Peer(fault.Internal, l.session.Peer,
		"inproc: the ring of the link is damaged: %s", text))
	l.fabric.doorbell.Ring()
}

// Close closes this end of the session.
func (l *link) Close() error { return l.Leave(nil) }

// Leave closes this end of the session and tells the other why.
func (l *link) Leave(why []byte) error {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	l.close(why)
	l.fabric.doorbell.Ring()
	return nil
}

func (l *link) close(why []byte) {
	if l.closed {
		return
	}
	l.closed = true
	delete(l.fabric.links, l)
	l.other.session.Window.Release()
	closeAll(l.shared)
	l.shared = nil
	for i := range l.channels {
		l.channels[i].Close()
	}
	s := &l.session
	l.err.CompareAndSwap(nil, fault.New(fault.Closed, "inproc: rank %d has closed its link to rank %d", s.Rank, s.Peer))
	left := fault.Peer(fault.PeerLeft, s.Rank, "inproc: rank %d has closed its link to rank %d", s.Rank, s.Peer)
	left.Left = bytes.Clone(why[:min(len(why), transport.MaxWhy)])
	l.other.err.CompareAndSwap(nil, left)
	if !l.other.closed {
		return
	}
	// Neither end reads the other's fragments any more.
	for _, end := range []*link{l, l.other} {
		for i := range end.channels {
			end.channels[i].Forget()
		}
	}
}
