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

// Wakes, as Channel of a Fault, are the wake-ups of Link.Notify instead of fragments. They can be
// late.
const Wakes = -2

// Fault is something that goes wrong with certain fragments. Where several match, all of them act.
type Fault struct {
	From, To int // ranks of the sender and the receiver
	Channel  int
	Fragment int // number of the fragment in its direction of its channel, from 0
	OneIn    int // of the fragments that match it acts on one in so many, drawn from Network.Seed; 0 for all

	Delay   time.Duration // the fragment, and with it what follows in its channel, arrives so much later
	Jitter  time.Duration // and by up to so much more, drawn from Network.Seed
	Corrupt byte          // is xored to one byte of the payload (fragments without payload stay as they are)
	Byte    int           // which one; modulo the length
	Cut     bool          // the link breaks instead of delivering the fragment, on both sides

	Short  int           // the sender is lent so many bytes for it at most, a multiple of 64
	Starve time.Duration // the sender is lent nothing for it, for so long since it asked
}

func (f *Fault) late() bool { return f.Delay > 0 || f.Jitter > 0 }

func (f *Fault) credit() bool { return f.Short > 0 || f.Starve > 0 }

// lot draws for one fault of one direction of a channel: what happens to a fragment depends on
// nothing but its number and the seed.
type lot struct {
	Fault
	seed uint64
}

// number is a random one for a fragment. Those of different n have nothing to do with each other.
func (l *lot) number(fragment, n int) uint64 {
	return mixed(mixed(l.seed+uint64(fragment)) + uint64(n))
}

// mixed is the finalizer of splitmix64.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hits reports whether the fault acts on a fragment.
func (l *lot) hits(fragment int) bool {
	return matches(l.Fragment, fragment) && (l.OneIn <= 1 || l.number(fragment, 0)%uint64(l.OneIn) == 0)
}

// delay is how late the fault makes a fragment.
func (l *lot) delay(fragment int) time.Duration {
	d := l.Delay
	if l.Jitter > 0 {
		d += time.Duration(l.number(fragment, 1) % uint64(l.Jitter))
	}
	return d
}

func matches(pattern, value int) bool { return pattern == Any || pattern == value }

// Network is what the fabrics of one test have in common.
type Network struct {
	Seed uint64 // of what is drawn; set it before links are made

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

// faultsOf returns those of the faults between two ranks that act on one direction of a channel.
func (n *Network) faultsOf(from, to, channel int, which func(*Fault) bool) (all []lot) {
	for i, f := range n.faults {
		// Any is every channel, but no wake-ups.
		if matches(f.From, from) && matches(f.To, to) && (f.Channel == channel || f.Channel == Any && channel >= 0) && which(&f) {
			seed := n.Seed
			for _, x := range []int{i, from, to, channel} {
				seed = mixed(seed + uint64(x))
			}
			all = append(all, lot{f, seed})
		}
	}
	return all
}

func lost(peer int) *fault.Error {
	return fault.Peer(fault.PeerLost, peer, "faulty: the link was cut by the test")
}
