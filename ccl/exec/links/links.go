// Package links is what the links of a rank offer to its executor: channels, memory that is sent in
// place, peers that share memory; and which of them have ended, or are not open yet.
package links

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// Set is the links of one rank of a group. Only the driver uses it, but for Rank, All, Tell and
// Flushed.
type Set struct {
	Rank     int
	All      []transport.Link // by peer rank; nil for this rank itself
	Width    int              // channels of a link
	Network  []bool           // by peer: the path leads through a network, so this core reads its fragments
	Unopened []bool           // by peer: there is no path yet
	Lost     []bool           // by peer: the driver has seen that the link has ended

	channels  []transport.Channel  // peer*width + channel
	gatherers []transport.Gatherer // as channels; nil if no link sends in place
	lenders   []transport.Lender   // the links to ranks that share memory with this one
	closed    int                  // how many peers are Unopened
}

// Open looks what links offer, each of which has width channels.
func (s *Set) Open(rank int, all []transport.Link, width int) error {
	size := len(all)
	*s = Set{Rank: rank, All: all, Width: width, channels: make([]transport.Channel, size*width),
		Network: make([]bool, size), Unopened: make([]bool, size), Lost: make([]bool, size)}
	for peer, link := range all {
		if (link == nil) != (peer == rank) {
			return fault.New(fault.Invalid, "link to rank %d of rank %d is missing or too many", peer, rank)
		}
		if link == nil {
			continue
		}
		for i := range width {
			at := peer*width + i
			s.channels[at] = link.Channel(i)
			if g, ok := s.channels[at].(transport.Gatherer); ok {
				if s.gatherers == nil {
					s.gatherers = make([]transport.Gatherer, size*width)
				}
				s.gatherers[at] = g
			}
		}
		if lender, ok := link.(transport.Lender); ok {
			s.lenders = append(s.lenders, lender)
		}
		if link.State().Network {
			s.Network[peer], s.Unopened[peer] = true, true
			s.closed++
		}
	}
	return nil
}

// Size returns the number of ranks.
func (s *Set) Size() int { return len(s.All) }

// Channel returns a channel of the link to a peer.
func (s *Set) Channel(peer, i int) transport.Channel { return s.channels[peer*s.Width+i] }

// Gatherer returns what sends in place on a channel, or nil.
func (s *Set) Gatherer(peer, i int) transport.Gatherer {
	if s.gatherers == nil {
		return nil
	}
	return s.gatherers[peer*s.Width+i]
}

// Notify wakes sleeping peers that share memory with this rank.
func (s *Set) Notify() {
	for _, lender := range s.lenders {
		lender.Notify()
	}
}

// Closed reports whether there are peers to which there is no path yet.
func (s *Set) Closed() bool { return s.closed > 0 }

// Connect has the path to a peer made, and reports whether it is there now, and was not before.
func (s *Set) Connect(peer int) bool {
	if !s.Unopened[peer] || !s.All[peer].Open() {
		return false
	}
	s.Unopened[peer] = false
	s.closed--
	return true
}

// End returns why the link to a peer has ended, if that has not been noted yet, and notes it.
func (s *Set) End(peer int) error {
	if link := s.All[peer]; link != nil && !s.Lost[peer] {
		if err := link.Err(); err != nil {
			s.Lost[peer] = true
			return err
		}
	}
	return nil
}

// Tell sends a peer a control message.
func (s *Set) Tell(peer int, message []byte) bool { return s.All[peer].Tell(message) }

// Flushed reports whether all data has left this process.
func (s *Set) Flushed() bool {
	for _, link := range s.All {
		if link != nil && !link.Flushed() {
			return false
		}
	}
	return true
}

// Leave ends all links, and tells the peers why.
func (s *Set) Leave(why []byte) {
	for _, link := range s.All {
		if link != nil {
			link.Leave(why)
		}
	}
}

// withdrawSpan is how long Withdraw waits at most.
const withdrawSpan = time.Second

// Withdraw has nothing read any more of what was sent in place: the calls whose memory that is are
// about to end. If an adapter does not let go in time, the memory stays registered, and cannot be
// freed (transport.Registrar).
func (s *Set) Withdraw(poll func()) {
	reading := false
	for _, g := range s.gatherers {
		reading = g != nil && !g.Withdraw() || reading
	}
	if !reading {
		return
	}
	begin := time.Now()
	var pace park.Spinner
	for _, g := range s.gatherers {
		for g != nil && !g.Withdraw() && time.Since(begin) < withdrawSpan {
			poll()
			pace.Relax()
		}
	}
}
