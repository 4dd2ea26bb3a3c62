package faulty

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// Any matches every rank, channel or fragment.
const Any = -1

// Wakes, as the Channel of a Fault, stands for the wake-ups of Link.Notify instead of fragments.
// They can be late.
const Wakes = -2

// Control, as the Channel of a Fault, stands for control messages. They can be late, and the link
// can be cut instead of delivering one.
const Control = -3

// State, as the Channel of a Fault, stands for what the sender's link knows of its path: its
// RoundTrip.
const State = -4

// Fault is a disturbance of certain fragments. If several match, all of them act.
type Fault struct {
	From, To int // ranks of the sender and the receiver
	Channel  int
	Fragment int // number of the fragment in its direction of its channel, from 0
	OneIn    int // it acts on one in OneIn of the matching fragments, drawn from Network.Seed; 0 for all

	Delay   time.Duration // how much later the fragment, and those behind it in its channel, arrive
	Jitter  time.Duration // an additional delay below this, drawn from Network.Seed
	Corrupt byte          // is xored to one byte of the payload (fragments without payload stay as they are)
	Byte    int           // index of that byte, modulo the length
	Cut     bool          // the link breaks instead of delivering the fragment, on both sides

	Short  int           // most bytes that the sender is lent for it, a multiple of 64; 0 for no limit
	Starve time.Duration // how long the sender is lent nothing for it, from its first Reserve on
	Linger time.Duration // how long the sender's link says that it has not left (Link.Flushed)

	RoundTrip time.Duration // of State: the sender's link says that a round trip takes that long, or longer
}

func (f *Fault) late() bool { return f.Delay > 0 || f.Jitter > 0 }

func (f *Fault) sending() bool { return f.Short > 0 || f.Starve > 0 || f.Linger > 0 }

func (f *Fault) far() bool { return f.RoundTrip > 0 }

// lot draws for one fault of one direction of a channel. What happens to a fragment depends only on
// its number and the seed.
type lot struct {
	Fault
	seed uint64
}

// number returns a random number for a fragment. Those of different n are independent of each
// other.
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

// delay returns how much later the fault makes a fragment.
func (l *lot) delay(fragment int) time.Duration {
	d := l.Delay
	if l.Jitter > 0 {
		d += time.Duration(l.number(fragment, 1) % uint64(l.Jitter))
	}
	return d
}

func matches(pattern, value int) bool { return pattern == Any || pattern == value }

// Network is the state that the fabrics of one test share.
type Network struct {
	Seed uint64 // for random draws; set it before links are made

	faults []Fault

	mu   sync.Mutex
	cuts map[cutKey]*cut
}

// cutKey identifies a link, the same from both sides.
type cutKey struct {
	session [16]byte
	lo, hi  int
}

// cut is the state of a link that both sides share.
type cut struct {
	done      atomic.Bool
	mu        sync.Mutex
	doorbells []*park.Doorbell
}

// NewNetwork returns a network with faults. Each fault acts on every link that it matches.
func NewNetwork(faults ...Fault) *Network {
	return &Network{faults: faults, cuts: map[cutKey]*cut{}}
}

// Cut breaks all open links between two ranks (Any for all).
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
	for _, b := range c.doorbells {
		b.Ring()
	}
}

// attach registers one side of a link.
func (n *Network) attach(s *transport.Session, doorbell *park.Doorbell) *cut {
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
	c.doorbells = append(c.doorbells, doorbell)
	return c
}

// faultsOf returns the faults that act on one direction of a channel between two ranks.
func (n *Network) faultsOf(from, to, channel int, which func(*Fault) bool) (all []lot) {
	for i, f := range n.faults {
		// Any matches every channel, but neither the wake-ups, the control messages nor the state.
		if matches(f.From, from) && matches(f.To, to) &&
			(f.Channel == channel || f.Channel == Any && channel >= 0) && which(&f) {
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
