package transport

import (
	"context"

	"github.com/goccl/goccl/ccl/mem"
)

// Limits that every implementation keeps.
const (
	MaxChannels = 8
	MaxAddress  = 4096    // bytes of Fabric.Address
	MaxFragment = 1 << 20 // bytes of one payload
)

// Meta travels with each fragment; only the executor knows what it means.
type Meta [3]uint64

// Channel is a bounded queue of fragments in both directions between two ranks of one group.
type Channel interface {
	// Reserve lends space for one payload of up to n bytes: n bytes, or fewer where space is short,
	// or nil without credit. For n = 0 it lends an empty, non-nil slice. The memory is aligned to
	// 64 bytes where n > 32.
	Reserve(n int) []byte
	// Publish sends the first n bytes of what the last Reserve lent, with m, as a part of a series.
	// A peer that looks may find the fragment at once; a peer that sleeps is woken for it by Flush,
	// which must follow.
	Publish(n int, m *Meta)
	// Commit is Publish and Flush: a series of one, or the end of one.
	Commit(n int, m *Meta)

	// Look returns the oldest unread fragment, the same one until Consume or Release; m is nil if
	// there is none. Payload and m point into the transport's memory and are valid until then.
	Look() (payload []byte, m *Meta)
	// Peek is Look with a copy of the Meta, which the caller may keep.
	Peek() (payload []byte, m Meta, ok bool)
	// Consume gives the fragment of the last Look or Peek back to the sender, as a part of a
	// series. A sender without credit may find the space at once; one that sleeps is woken for it
	// by Flush, which must follow.
	Consume()
	// Release is Consume and Flush.
	Release()

	// Flush ends a series: from here on the peer learns of everything that was published or
	// consumed, even if it sleeps. It leaves alone what Reserve has lent, and costs next to nothing
	// where there is no series.
	Flush()
}

// Link joins a local rank of a group to one peer of it.
type Link interface {
	// Channel returns channel i, 0 ≤ i < Session.Channels. Always the same value for the same i.
	Channel(i int) Channel
	// Window is memory that the peer gave to be read: its Session.Window, in every byte as the peer
	// sees it. It is nil where the peer gave none or the ranks share no memory, and is valid until
	// Close.
	Window() []byte
	// Notify wakes whoever sleeps in the peer's process: something has changed in this rank's
	// window.
	Notify()
	// Err is nil while the path works, and for good the reason once it does not. It is cheap:
	// called whenever nothing arrives.
	Err() error
	// Close ends this side in order, a series too: what was published still arrives, then the peer
	// sees fault.PeerLeft. It does not wait for the peer. Memory lent by the link must not be
	// touched afterwards.
	Close() error
}

// Session says what a link is for. Both sides give the same ID and Channels, and each other's
// ranks.
type Session struct {
	ID       [16]byte // unique to the group
	Rank     int      // of this side
	Peer     int      // of the other side
	Channels int
	Key      [32]byte // shared by the members of the group, to authenticate each other

	// Window is what the peer may read of this rank, nil for nothing. Both sides give windows of
	// the same size, or none. The link of a fabric that shares no memory leaves it alone. It must
	// not be released before Connect has returned.
	Window *mem.Window
}

// Flusher is a Link whose fragments stay in this process for a while after their Commit, and after
// Channel.Flush, which does not wait for them.
type Flusher interface {
	// Flushed reports whether everything published so far has left this process, or never will. It
	// never waits.
	Flushed() bool
}

// Lender is a Link that also lends the registered memory of the peer's process, which the peer
// reads of this one, too.
type Lender interface {
	// Arena is that memory: buffers that the peer has told of may be read, by their place in it. It
	// is nil where one of the two has none, and is valid until Close.
	Arena() []byte
}

// Fabric is one kind of path of this process.
type Fabric interface {
	// Name is "inproc", "shm" or "tcp".
	Name() string
	// Address is what a peer must know to connect; at most MaxAddress bytes, opaque to everybody
	// else.
	Address() []byte
	// Reaches reports whether this process and the one with that address can be joined by this
	// fabric. It is symmetric, pure and quick: both sides decide alike.
	Reaches(peer []byte) bool
	// SharesMemory reports whether the ranks that it joins can read each other's windows: between
	// processes these are then shared segments.
	SharesMemory() bool
	// Connect opens a link for one session. Both sides call it, in any order and with other calls
	// at the same time; it returns when both have, or with an error when ctx ends first (the error
	// names what is missing).
	Connect(ctx context.Context, peer []byte, s Session) (Link, error)
	// Close ends all links and the fabric.
	Close() error
}

// Poller is what a fabric also implements when its events come from the kernel and not from memory.
type Poller interface {
	// Poll moves what it can without waiting; it reports whether anything moved. Any thread may
	// call it.
	Poll() bool
	// Arm is called before sleeping on the bell: from then on an event rings it. Cheap when armed
	// already.
	Arm()
}
