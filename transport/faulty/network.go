package faulty

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
)

// Any matches every rank, channel or fragment.
const Any = -1

// Fault is something that goes wrong with certain fragments. Where several match, all of them act.
type Fault struct {
	From, To int // ranks of the sender and the receiver
	Channel  int
	Fragment int // number of the fragment in its direction of its channel, from 0

	Delay   time.Duration // the fragment, and with it what follows, arrives so much later
	Corrupt byte          // is xored to one byte of the payload (fragments without payload stay as they are)
	Byte    int           // which one; modulo the length
	Cut     bool          // the link breaks instead of delivering the fragment, on both sides
}

func matches(pattern, value int) bool { return pattern == Any || pattern == value }

// Network is what the fabrics of one test have in common.
type Network struct {
	faults []Fault

	mu   sync.Mutex
	cuts map[cutKey]*cut
}

// cutKey names a link, seen from either side.
type cutKey struct {
	session [16]byte
	lo, hi  int
}

// cut is the state of a link that both sides look at.
type cut struct {
	done  atomic.Bool
	mu    sync.Mutex
	bells []*park.Bell
}

// NewNetwork makes a network with faults. Each acts on every link that it matches.
func NewNetwork(faults ...Fault) *Network {
	return &Network{faults: faults, cuts: map[cutKey]*cut{}}
}

// Wrap returns a fabric around inner, whose process has the bell.
func (n *Network) Wrap(inner transport.Fabric, bell *park.Bell) *Fabric {
	p, _ := inner.(transport.Poller)
	return &Fabric{network: n, inner: inner, poller: p, bell: bell}
}

// Cut breaks all links between two ranks that are open now (Any for all).
func (n *Network) Cut(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, c := range n.cuts {
		if matches(a, k.lo) && matches(b, k.hi) || matches(a, k.hi) && matches(b, k.lo) {
			c.now()
		}
	}
}

// now breaks the link.
func (c *cut) now() {
	if c.done.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.bells {
		b.Ring()
	}
}

// attach registers one side of a link.
func (n *Network) attach(s *transport.Session, bell *park.Bell) *cut {
	key := cutKey{s.ID, min(s.Rank, s.Peer), max(s.Rank, s.Peer)}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.cuts[key]
	if c == nil {
		c = &cut{}
		n.cuts[key] = c
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bells = append(c.bells, bell)
	return c
}

// incoming returns the faults of one channel, for what the side of s receives.
func (n *Network) incoming(s *transport.Session, channel int) (faults []Fault) {
	for _, f := range n.faults {
		if matches(f.From, s.Peer) && matches(f.To, s.Rank) && matches(f.Channel, channel) {
			faults = append(faults, f)
		}
	}
	return faults
}

func lost(peer int) *fault.Error {
	return fault.Peer(fault.PeerLost, peer, "faulty: the link was cut by the test")
}
