package faulty

import (
	"context"
	"net/netip"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// fabric is a wrapped fabric.
type fabric struct {
	network  *Network
	inner    transport.Fabric
	doorbell *park.Doorbell
}

// Wrap returns a fabric around inner, whose process has the given doorbell. It is a Poller, a
// Registrar and a Door where inner is; so are its links Lenders and its channels Gatherers. What
// visitors say is not disturbed.
func (n *Network) Wrap(inner transport.Fabric, doorbell *park.Doorbell) transport.Fabric {
	type (
		poller    struct{ transport.Poller }
		registrar struct{ transport.Registrar }
		door      struct{ transport.Door }
	)
	f := &fabric{n, inner, doorbell}
	p, polls := inner.(transport.Poller)
	r, registers := inner.(transport.Registrar)
	d, admits := inner.(transport.Door)
	switch {
	case polls && registers && admits:
		return struct {
			*fabric
			poller
			registrar
			door
		}{f, poller{p}, registrar{r}, door{d}}
	case polls && registers:
		return struct {
			*fabric
			poller
			registrar
		}{f, poller{p}, registrar{r}}
	case polls && admits:
		return struct {
			*fabric
			poller
			door
		}{f, poller{p}, door{d}}
	case registers && admits:
		return struct {
			*fabric
			registrar
			door
		}{f, registrar{r}, door{d}}
	case polls:
		return struct {
			*fabric
			poller
		}{f, poller{p}}
	case registers:
		return struct {
			*fabric
			registrar
		}{f, registrar{r}}
	case admits:
		return struct {
			*fabric
			door
		}{f, door{d}}
	}
	return f
}

// Name implements transport.Fabric.
func (f *fabric) Name() string { return f.inner.Name() }

// Address implements transport.Fabric.
func (f *fabric) Address() []byte { return f.inner.Address() }

// Reaches implements transport.Fabric.
func (f *fabric) Reaches(peer []byte) bool { return f.inner.Reaches(peer) }

// SharesMemory implements transport.Fabric.
func (f *fabric) SharesMemory() bool { return f.inner.SharesMemory() }

// Locate implements transport.Fabric.
func (f *fabric) Locate(peer []byte) []netip.Addr { return f.inner.Locate(peer) }

// Connect implements transport.Fabric.
func (f *fabric) Connect(ctx context.Context, peer []byte, s transport.Session) (transport.Link, error) {
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
	l.inner, l.cut = inner, n.attach(&s, f.doorbell)
	for _, x := range n.faultsOf(s.Rank, s.Peer, State, (*Fault).far) {
		l.trip = max(l.trip, x.RoundTrip)
	}
	l.wakes.faults = n.faultsOf(s.Rank, s.Peer, Wakes, (*Fault).late)
	for i := range s.Channels {
		c := &channel{link: l, inner: inner.Channel(i), doorbell: f.doorbell}
		c.arriving(n.faultsOf(s.Peer, s.Rank, i, func(x *Fault) bool { return x.late() || x.Corrupt != 0 || x.Cut }))
		c.sending.faults = n.faultsOf(s.Rank, s.Peer, i, (*Fault).sending)
		l.channels, l.ends = append(l.channels, c), append(l.ends, c.end())
	}
	return l.end(), nil
}

// Close implements transport.Fabric.
func (f *fabric) Close() error { return f.inner.Close() }
