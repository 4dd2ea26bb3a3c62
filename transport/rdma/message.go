package rdma

import (
	"bytes"
	"encoding/json"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// message is what two processes tell each other over the control session of their pair.
type message struct {
	Kind string

	Ports []bool `json:",omitempty"` // ports: of each that is used, whether it is Ethernet
	Why   string `json:",omitempty"` // broken; ports: why there are none

	// hello, ready, broken, offer, vacate, vacated: of a connection. The epoch counts those of a
	// path.
	Path  int       `json:",omitempty"`
	Epoch uint32    `json:",omitempty"`
	End   *endpoint `json:",omitempty"` // hello

	// open, offer, vacate, vacated, close, closed: of a link.
	Link     uint32      `json:",omitempty"` // the sender's number of it; of closed, the receiver's
	To       uint32      `json:",omitempty"` // offer, vacate, vacated: the receiver's number of it
	Session  *sessionKey `json:",omitempty"` // open: as the receiver sees it
	At       uint64      `json:",omitempty"` // offer: address of the short slots of all channels of the link
	Key      uint32      `json:",omitempty"`
	Bytes    int         `json:",omitempty"` // of a slot
	Channels []int       `json:",omitempty"` // offer, vacate, vacated: which channels
	Long     []int       `json:",omitempty"` // offer: a long slot for each of them, or for some of them
}

// The kinds of messages.
const (
	sayPorts   = "ports"   // the ports that the sender uses
	sayHello   = "hello"   // this side has made a queue pair
	sayReady   = "ready"   // it is connected with that of the receiver
	sayBroken  = "broken"  // the connection does not work
	sayBye     = "bye"     // the sender closes its fabric
	sayOpen    = "open"    // the sender has opened a link
	sayOffer   = "offer"   // the receiver may write to channels of it
	sayVacate  = "vacate"  // the receiver is to stop that: they change to another path
	sayVacated = "vacated" // it has stopped, or will not begin, and nothing is on the way
	sayClose   = "close"   // the sender has closed a link
	sayClosed  = "closed"  // nothing is written to a link any more that the receiver has closed
)

// endpoint describes a queue pair and its port.
type endpoint struct {
	LID      uint16
	GID      [16]byte
	MTU      int
	Pair     uint32
	Sequence uint32
	Pool     remotePool
}

// remotePool is the memory that a peer grants long slots of.
type remotePool struct {
	At    uint64
	Key   uint32
	Slots int
}

// sessionKey names a session.
type sessionKey struct {
	ID         [16]byte
	Rank, Peer int
}

func keyOf(s *transport.Session) sessionKey { return sessionKey{s.ID, s.Rank, s.Peer} }

func (k sessionKey) mirrored() sessionKey { return sessionKey{k.ID, k.Peer, k.Rank} }

func (m *message) text() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has nothing that cannot be written
	}
	return b
}

func parse(text []byte) (*message, error) {
	m := &message{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "rdma: a message of the peer cannot be read")
	}
	bad := m.Path < 0 || m.Path >= MostPorts
	switch m.Kind {
	case sayPorts:
		bad = bad || len(m.Ports) > MostPorts
	case sayHello:
		bad = bad || m.End == nil || m.End.Pool.Slots < 0 || m.End.Pool.Slots > mostLong || m.Epoch == 0
	case sayReady, sayBroken, sayBye, sayVacate, sayVacated:
	case sayOpen:
		bad = bad || m.Session == nil || m.Link == 0 || m.Link >= mostChannel
	case sayOffer:
		bad = bad || m.Bytes < leastBytes || m.Bytes > shortBytes || m.Bytes%headBytes != 0 ||
			len(m.Long) > len(m.Channels)
	case sayClose, sayClosed:
	default:
		bad = true
	}
	if bad {
		return nil, fault.New(fault.Internal, "rdma: the peer sends a message %q that does not fit", m.Kind)
	}
	return m, nil
}
