package shm

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
)

// maxMessage is larger than any message, so no message is split.
const maxMessage = 1024 + transport.MaxControl

const helloMagic = "goccl shm"

// version of the protocol and of the rings.
const version = 8

// Kinds of message. The kind is the first byte.
const (
	kindHello = iota + 1
	kindOpen
	kindBye
	kindRefuse
	kindJoined
	kindControl
	kindHeard
)

// layout lists the values that both sides must agree on before they read each other's memory.
type layout struct{ Version, Depth, Inline, Slot, Lease, Channel uint32 }

var ownLayout = layout{
	version, ring.Depth, ring.InlineBytes, ring.SlotBytes, ring.LeaseBytes, uint32(ring.ChannelBytes)}

// hello is the first message of each side. It comes with the descriptors of doorbell and pool, and
// of the arena if there is one.
type hello struct {
	Magic      [len(helloMagic)]byte
	Layout     layout
	From, To   id
	Challenge  [32]byte
	PoolBytes  uint64
	ArenaBytes uint64 // size of registered memory, 0 for none
}

// open comes with the descriptor of a ring segment, of the window if there is one, and with those
// that the sender shares.
type open struct {
	Serial     uint64
	Session    [16]byte
	Rank, Peer uint32 // of the sender
	Channels   uint32
	Slot       uint32 // size of each private slot of its ring
	Window     uint64 // size, 0 for none
	Share      uint32 // number of descriptors
	Length     uint32 // of Note
	Note       [transport.MaxNote]byte
	MAC        [32]byte
}

// check returns an error if a peer's open has lengths that cannot be.
func (o *open) check() error {
	if o.Share > transport.MaxShare || o.Length > transport.MaxNote {
		return fmt.Errorf("open that shares %d descriptors and a note of %d bytes", o.Share, o.Length)
	}
	return nil
}

// note returns what the sender says of the descriptors that it shares.
func (o *open) note() []byte { return bytes.Clone(o.Note[:o.Length]) }

// bye closes what the sender has opened under Serial. If it has given up before it could open
// anything, Serial is 0, and To is what the receiver has opened in vain.
type bye struct {
	Serial uint64
	To     uint64
	Length uint32
	Why    [transport.MaxWhy]byte
}

func newBye(serial uint64, why []byte) *bye {
	b := &bye{Serial: serial}
	b.Length = uint32(copy(b.Why[:], why))
	return b
}

// newVain returns the answer to an open for which the sender has given up before.
func newVain(to uint64, why []byte) *bye {
	b := newBye(0, why)
	b.To = to
	return b
}

// why returns what the sender said, nil for nothing.
func (b *bye) why() []byte {
	if b.Length == 0 {
		return nil
	}
	return b.Why[:min(int(b.Length), len(b.Why))]
}

// joined announces that the sender has joined its open of serial number From with the receiver's
// open of serial number To.
type joined struct{ From, To uint64 }

// control is a control message for the session of an open of the sender. Its text has no fixed
// length: it is the rest of the packet.
type control struct {
	Serial uint64
	Text   []byte
}

// heard acknowledges control messages: those of this connection that have been handled.
type heard struct{ Count uint64 }

type refuse struct {
	Serial uint64
	Code   uint32 // of package fault
	Length uint32
	Text   [200]byte
}

func newRefuse(serial uint64, code int, text string) *refuse {
	r := &refuse{Serial: serial, Code: uint32(code)}
	r.Length = uint32(copy(r.Text[:], text))
	return r
}

// code returns the code that the sender gave, or Internal if that is no known error code.
func (r *refuse) code() fault.Code {
	if code := fault.Code(r.Code); code > fault.OK && code <= fault.Internal {
		return code
	}
	return fault.Internal
}

func (r *refuse) text() string { return string(r.Text[:min(int(r.Length), len(r.Text))]) }

// encode returns the packet for a message.
func encode(message any) []byte {
	kind := byte(0)
	switch m := message.(type) {
	case *hello:
		kind = kindHello
	case *open:
		kind = kindOpen
	case *bye:
		kind = kindBye
	case *refuse:
		kind = kindRefuse
	case *joined:
		kind = kindJoined
	case *control:
		return append(binary.LittleEndian.AppendUint64([]byte{kindControl}, m.Serial), m.Text...)
	case *heard:
		kind = kindHeard
	}
	b := bytes.NewBuffer([]byte{kind})
	binary.Write(b, binary.LittleEndian, message)
	return b.Bytes()
}

// decode returns the message in a packet. Every packet must have exactly the size of its kind. The
// text of a control message is a part of the packet.
func decode(packet []byte) (any, error) {
	if len(packet) == 0 {
		return nil, fmt.Errorf("empty message")
	}
	var message any
	switch packet[0] {
	case kindHello:
		message = &hello{}
	case kindOpen:
		message = &open{}
	case kindBye:
		message = &bye{}
	case kindRefuse:
		message = &refuse{}
	case kindJoined:
		message = &joined{}
	case kindControl:
		const head = 1 + 8
		if n := len(packet) - head; n < 0 || n > transport.MaxControl {
			return nil, fmt.Errorf("control message of %d bytes in a packet of %d", n, len(packet))
		}
		return &control{binary.LittleEndian.Uint64(packet[1:]), packet[head:]}, nil
	case kindHeard:
		message = &heard{}
	default:
		return nil, fmt.Errorf("message of unknown kind %d", packet[0])
	}
	if want := 1 + binary.Size(message); len(packet) != want {
		return nil, fmt.Errorf("message of kind %d has %d bytes, want %d", packet[0], len(packet), want)
	}
	_, err := binary.Decode(packet[1:], binary.LittleEndian, message)
	if o, ok := message.(*open); ok && err == nil {
		err = o.check()
	}
	return message, err
}

// mostRights is more descriptors than a message has.
const mostRights = 8

// descriptors returns how many descriptors must come with a message.
func descriptors(message any) int {
	switch m := message.(type) {
	case *hello:
		if m.ArenaBytes > 0 {
			return 3
		}
		return 2
	case *open:
		return m.own() + int(m.Share)
	}
	return 0
}

// own returns how many descriptors an open has beside those that its sender shares.
func (o *open) own() int {
	if o.Window > 0 {
		return 2
	}
	return 1
}

// check returns an error if a peer's hello is invalid.
func (h *hello) check(from, to id) error {
	switch {
	case string(h.Magic[:]) != helloMagic:
		return fmt.Errorf("it is not a goccl process")
	case h.Layout != ownLayout:
		return fmt.Errorf("another version of goccl: %+v there, %+v here", h.Layout, ownLayout)
	case !hmac.Equal(h.To[:], to[:]) || h.From != from:
		return fmt.Errorf("it does not know this process's address")
	case h.PoolBytes == 0 || h.PoolBytes > maxPoolBytes || h.PoolBytes%ring.LeaseBytes != 0:
		return fmt.Errorf("its pool has %d bytes", h.PoolBytes)
	case h.ArenaBytes > maxArenaBytes:
		return fmt.Errorf("its registered memory has %d bytes", h.ArenaBytes)
	}
	return nil
}

// seal returns the HMAC of an open with the key of its session. It is valid for one direction of
// one connection only.
func (o *open) seal(key [32]byte, from, to *hello) (mac [32]byte) {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte("goccl shm open"))
	h.Write(from.From[:])
	h.Write(to.From[:])
	h.Write(from.Challenge[:])
	h.Write(to.Challenge[:])
	plain := *o
	plain.MAC = [32]byte{}
	binary.Write(h, binary.LittleEndian, &plain)
	h.Sum(mac[:0])
	return mac
}

// sessionKey identifies the two ends of a session, as seen from this side.
type sessionKey struct {
	id         [16]byte
	rank, peer int
}

func keyOf(s *transport.Session) sessionKey { return sessionKey{s.ID, s.Rank, s.Peer} }

// key returns the key of the end that is to answer o.
func (o *open) key() sessionKey { return sessionKey{o.Session, int(o.Peer), int(o.Rank)} }
