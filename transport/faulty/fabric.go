package faulty

import (
	"context"
	"slices"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
)

// Fabric is a wrapped fabric.
type Fabric struct {
	network  *Network
	inner    transport.Fabric
	poller   transport.Poller // nil if inner is not a Poller
	doorbell *park.Doorbell
}

var (
	_ transport.Fabric = (*Fabric)(nil)
	_ transport.Poller = (*Fabric)(nil)
)

// Name implements transport.Fabric.
func (f *Fabric) Name() string { return f.inner.Name() }

// Address implements transport.Fabric.
func (f *Fabric) Address() []byte { return f.inner.Address() }

// Reaches implements transport.Fabric.
func (f *Fabric) Reaches(peer []byte) bool { return f.inner.Reaches(peer) }

// SharesMemory implements transport.Fabric.
func (f *Fabric) SharesMemory() bool { return f.inner.SharesMemory() }

// Connect implements transport.Fabric.
func (f *Fabric) Connect(ctx context.Context, peer []byte, s transport.Session) (transport.Link, error) {
	n := f.network
	l := &link{lost: lost(s.Peer)}
	l.control.faults = n.faultsOf(s.Peer, s.Rank, Control, func(x *Fault) bool { return x.late() || x.Cut })
	l.control.made = make(chan struct{})
	defer close(l.control.made)
	if l.control.handler = s.Control; s.Control != nil {
		s.Control = l.hear
	}
	inner, err := f.inner.Connect(ctx, peer, s)
	if err != nil {
		return nil, err
	}
	l.inner, l.cut, l.channels = inner, n.attach(&s, f.doorbell), make([]channel, s.Channels)
	l.flusher, _ = inner.(transport.Flusher)
	l.lender, _ = inner.(transport.Lender)
	l.opener, _ = inner.(transport.Opener)
	l.sharer, _ = inner.(transport.Sharer)
	l.wakes.faults = n.faultsOf(s.Rank, s.Peer, Wakes, (*Fault).late)
	for i := range l.channels {
		c := &l.channels[i]
		c.link, c.inner, c.doorbell = l, inner.Channel(i), f.doorbell
		c.faults = n.faultsOf(s.Peer, s.Rank, i, func(x *Fault) bool { return x.late() || x.Corrupt != 0 || x.Cut })
		c.slow = slices.ContainsFunc(c.faults, func(x lot) bool { return x.late() })
		c.sending.faults = n.faultsOf(s.Rank, s.Peer, i, (*Fault).credit)
	}
	return l, nil
}

// Close implements transport.Fabric.
func (f *Fabric) Close() error { return f.inner.Close() }

// Poll implements transport.Poller.
func (f *Fabric) Poll() bool { return f.poller != nil && f.poller.Poll() }

// Leave implements transport.Poller.
func (f *Fabric) Leave() {
	if f.poller != nil {
		f.poller.Leave()
	}
}

// Arm implements transport.Poller.
func (f *Fabric) Arm() {
	if f.poller != nil {
		f.poller.Arm()
	}
}
