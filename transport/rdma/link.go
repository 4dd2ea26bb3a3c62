package rdma

import (
	"bytes"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// link is a tcp link whose fragments go by a connection while there is one.
type link struct {
	pair     *pair
	tcp      transport.Link
	spec     transport.Session
	base     uint32 // the number of channel 0 in immediates of the peer; that of the link
	short    int    // bytes of a short slot
	channels []channel
	theirs   atomic.Uint32 // base at the peer, 0 while it is not known
	closing  atomic.Bool
	begun    atomic.Bool   // it is to be opened to the peer
	ready    chan struct{} // closed when fragments of both directions go over a connection, or will not
	failed   atomic.Pointer[fault.Error]
	drained  atomic.Bool // what came before the end of the tcp link was taken from the adapter

	// What follows is the manager's.
	slots, stage *registered     // where the peer writes, and from where this side does
	offered      []*connection   // by channel: where the peer has offered slots last
	vacates      []*connection   // by channel: which one is being left, nil if none is
	unfit        [MostPorts]bool // by path: it cannot be used
	entered      bool            // it was opened to the peer
	isReady      bool            // ready is closed
	left         bool            // the peer has closed its end, and may give its number to another link
	why          []byte          // of Leave
	ending       ending
	fenced       bool // it waits for what was published to be written
}

// ending says how far the end of a link has come.
type ending byte

const (
	open_    ending = iota
	flushing        // what was published has not reached the peer
	leaving         // tcp has been left; the peer may still write into slots
	ended
)

var errClosed = fault.New(fault.Closed, "rdma: the link was closed on this side")

func newLink(p *pair, tcp transport.Link, s transport.Session, base uint32, short int) *link {
	l := &link{pair: p, tcp: tcp, spec: s, base: base, short: short, channels: make([]channel, s.Channels),
		ready: make(chan struct{}), offered: make([]*connection, s.Channels), vacates: make([]*connection, s.Channels)}
	for i := range l.channels {
		c := &l.channels[i]
		c.link, c.index, c.tcp, c.out.channel = l, i, tcp.Channel(i), c
		for k := range c.waiters {
			c.waiters[k].channel = c
		}
	}
	return l
}

// Channel implements transport.Link.
func (l *link) Channel(i int) transport.Channel { return &l.channels[i] }

// Tell implements transport.Link.
func (l *link) Tell(message []byte) bool { return !l.closing.Load() && l.tcp.Tell(message) }

// Err implements transport.Link. What a peer has published before it left or died arrives before
// its goodbye does, but has to be taken from the adapter.
func (l *link) Err() error {
	if l.closing.Load() {
		return errClosed
	}
	if e := l.failed.Load(); e != nil {
		return e
	}
	err := l.tcp.Err()
	if err == nil || !l.drained.Load() && (l.pair.f.drain() || inOrder(err) && !l.allSent()) {
		return nil
	}
	l.drained.Store(true) // an error stays
	return err
}

// inOrder reports whether an error says that the peer has left without a reason to.
func inOrder(err error) bool {
	f, ok := err.(*fault.Error)
	return ok && f.Code == fault.PeerLeft && (len(f.Left) == 0 || fault.Parted(f.Left))
}

// allSent reports whether nothing is read any more that was sent in place. The peer has taken all
// that it needs: the end of the link must not look as if it had not.
func (l *link) allSent() bool {
	for i := range l.channels {
		if !l.channels[i].out.allSent() {
			return false
		}
	}
	return true
}

// broke ends the link: the peer does not keep to the protocol.
func (l *link) broke(err error) {
	e := fault.Peer(fault.Internal, l.spec.Peer, "%v", err)
	l.failed.CompareAndSwap(nil, e)
}

// Close implements transport.Link.
func (l *link) Close() error { return l.Leave(nil) }

// Leave implements transport.Link. The goodbye follows what was published.
func (l *link) Leave(why []byte) error {
	if l.closing.Swap(true) {
		return nil
	}
	text := bytes.Clone(why)
	l.pair.f.manager.do(func() { l.pair.leave(l, text) })
	return nil
}

// Open implements transport.Link.
func (l *link) Open() bool {
	if !l.tcp.Open() {
		return false
	}
	l.begin()
	return true
}

// begin has the pair know of the link, now that there is a path.
func (l *link) begin() {
	if !l.begun.Load() && !l.begun.Swap(true) {
		l.pair.f.manager.do(func() { l.pair.enter(l) })
	}
}

// Flushed implements transport.Link. What was posted leaves by itself.
func (l *link) Flushed() bool {
	for i := range l.channels {
		if !l.channels[i].out.flushed() {
			return false
		}
	}
	return l.tcp.Flushed()
}

// State implements transport.Link: that of the tcp link, with the ports that are used, or why none
// is.
func (l *link) State() transport.LinkState {
	state := l.tcp.State()
	state.From = l.pair.from(state.From)
	if why := l.pair.why.Load(); why != nil {
		state.Detour = why.err
	}
	return state
}

var _ transport.Link = (*link)(nil)
