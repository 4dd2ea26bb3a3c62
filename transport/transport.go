package transport

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/goccl/goccl/internal/mem"
)

// Limits that every implementation keeps.
const (
	MaxChannels = 8
	MaxAddress  = 4096    // bytes of Fabric.Address
	MaxFragment = 1 << 20 // bytes of one payload
	MaxControl  = 4096    // bytes of one control message
	MaxWhy      = 1024    // bytes of Link.Leave
	MaxShare    = 5       // descriptors of Session.Share
	MaxNote     = 256     // bytes of Session.Note
)

// Meta travels with each fragment; only the executor interprets it.
type Meta [3]uint64

// Channel is a bounded queue of fragments in both directions between two ranks of one group.
type Channel interface {
	// Reserve lends space for one payload of up to n bytes: n bytes, fewer where space is short, or
	// nil without credit. For n = 0 it lends an empty, non-nil slice. The memory is aligned to 64
	// bytes where n > 32.
	Reserve(n int) []byte
	// Publish sends the first n bytes of the space that the last Reserve lent, with m, as part of a
	// series. A polling peer may see the fragment at once; a sleeping peer is woken by Flush, which
	// must follow.
	Publish(n int, m *Meta)
	// Commit is Publish and Flush: a series of one, or the end of a series.
	Commit(n int, m *Meta)

	// Look returns the oldest unread fragment, the same one until Consume or Release; m is nil if
	// there is none. Payload and m point into the transport's memory and are valid until then.
	Look() (payload []byte, m *Meta)
	// Peek is Look with a copy of the Meta, which the caller may keep.
	Peek() (payload []byte, m Meta, ok bool)
	// Consume gives the fragment of the last Look or Peek back to the sender, as part of a series.
	// A polling sender without credit may find the space at once; a sleeping sender is woken by
	// Flush, which must follow.
	Consume()
	// Release is Consume and Flush.
	Release()

	// Flush ends a series: from here on the peer learns of all published and consumed fragments,
	// even if it sleeps. It does not affect space that Reserve has lent, and costs next to nothing
	// where there is no series.
	Flush()
}

// Gatherer is a Channel that can send from registered memory in place (Registrar).
type Gatherer interface {
	// Gather sends the first n bytes of memory as a fragment with m: all of them, or a multiple of
	// 64. It ends a series, as Commit does. Without credit n is 0. ok is false where these bytes
	// have to be copied, by Reserve. Until Sent nobody may change the memory or free it.
	Gather(memory []byte, m *Meta) (n int, ok bool)
	// Sent reports whether no memory that Gather was given is read any more, or will be. The
	// doorbell rings when that comes true.
	Sent() bool
	// Withdraw gives up what is not Sent, after which the channel sends nothing any more, and
	// reports whether the memory is no longer read. It does not wait: the caller repeats it until
	// it returns true, which takes a fraction of a second at most, whatever the peer does.
	Withdraw() bool
}

// Link joins a local rank of a group to one peer of it.
type Link interface {
	// Channel returns channel i, 0 ≤ i < Session.Channels: always the same value for the same i.
	Channel(i int) Channel
	// Open has the path made, if it is made on use (Session.OnUse), and reports whether it is there
	// or has ended. It does not wait; the doorbell rings when either comes true. A thread that
	// waits for something from the peer calls it whenever nothing has arrived, until it returns
	// true.
	Open() bool
	// State returns what the link knows of its path. It allocates nothing while that stays as it
	// is. Any thread may call it at any time.
	State() LinkState
	// Flushed reports whether everything published so far has left this process, or never will:
	// fragments may stay for a while after their Commit and after Channel.Flush, which does not
	// wait for them. Nor does Flushed.
	Flushed() bool
	// Tell queues a copy of a control message for the peer, and returns at once. It returns false
	// if the message is longer than MaxControl, if too much is waiting for that process already, or
	// if the link has ended. Any thread may call it at any time.
	Tell(message []byte) bool
	// Err returns nil while the path works, and afterwards the reason, for good, why it does not.
	// It is cheap: the executor calls it whenever nothing arrives. Any thread may call it at any
	// time. It does not notice that the peer dies before there is a path (Open); what Connect would
	// have reported is then reported here.
	Err() error
	// Close ends this side in order and ends an open series: published fragments still arrive, then
	// the peer sees fault.PeerLeft. It does not wait for the peer. Memory lent by the link must not
	// be touched afterwards.
	Close() error
	// Leave is Close, and tells the peer why: its link's Err is then a *fault.Error with why in
	// Left. More than MaxWhy bytes are cut off.
	Leave(why []byte) error
}

// LinkState is what a link knows of its path. The zero value is that of a path through memory.
type LinkState struct {
	// Network is set for good if the path leads through a network: a core of this process reads the
	// fragments, and a path may be made on use. What follows is of such paths only.
	Network bool
	// From is the interface and address of this side, To the address of the other side; both are
	// empty while there is no connection.
	From, To string
	// RoundTrip is the shortest time that a message and its answer have taken; 0 if it is not
	// known.
	RoundTrip time.Duration
	// Detour is why fragments take another transport now than that of the Fabric; nil if they do
	// not.
	Detour error
	// Silent means that the peer's host has not answered for a while, so that the path has broken,
	// and no other one has been found yet.
	Silent bool
}

// Lender is a Link of ranks that share memory: it lends what the peer has.
type Lender interface {
	// Window returns the peer's Session.Window for reading, in its entirety and as the peer sees
	// it. It is nil if the peer gave none, and is valid until Close.
	Window() []byte
	// Notify wakes the threads that sleep in the peer's process, after a change in this rank's
	// window.
	Notify()
	// Arena returns the registered memory of the peer's process, which gets this process's.
	// Buffers whose position in it the peer has announced may be read. It is nil if either process
	// has no arena, and is valid until Close.
	Arena() []byte
	// Shared returns the peer's Session.Note, and copies of the descriptors in its Session.Share,
	// in their order and close-on-exec. The first call hands the descriptors to the caller, who
	// closes them; later calls return the note only, as does a call after Close. Those that nobody
	// has asked for are closed with the link. They may be descriptors of anything. Any thread may
	// call it at any time.
	Shared() (note []byte, descriptors []int)
}

// Session describes what a link is for. Both sides give the same ID and Channels, with Rank and
// Peer exchanged.
type Session struct {
	ID       [16]byte // unique to the group
	Rank     int      // of this side
	Peer     int      // of the other side
	Channels int
	Key      [32]byte // shared by the members of the group, to authenticate each other

	// Window is the memory of this rank that the peer may read, nil for none. Both sides give
	// windows of the same size, or none. A link that is no Lender ignores it. It must not be
	// released before Connect has returned.
	Window *mem.Window

	// Share has descriptors of memory, such as a device's, that the peer gets copies of, and Note
	// what it has to know of them: the transport looks at neither. The sides may give different
	// numbers of them and different notes, but both share something or neither does. The
	// descriptors stay the caller's, and must be open until Connect has returned. A link that is no
	// Lender ignores both.
	Share []int
	Note  []byte

	// OnUse allows Connect to return at once, without the peer: the path is made when it is needed,
	// by its first fragment or by Link.Open, and costs nothing but memory until then. Both sides
	// give the same. A fabric that shares memory ignores it.
	OnUse bool

	// Control handles the control messages of the peer; nil drops them. A goroutine of the fabric
	// calls it: see the documentation of the package for what it may do.
	Control func(message []byte)
}

// Fabric is one kind of path of this process.
type Fabric interface {
	// Name returns "inproc", "shm", "rdma" or "tcp".
	Name() string
	// Address returns what a peer needs in order to connect: at most MaxAddress bytes, opaque to
	// all but the fabric itself.
	Address() []byte
	// Reaches reports whether this fabric can join this process and the process with the given
	// address. It is symmetric, pure and quick: both sides decide alike.
	Reaches(peer []byte) bool
	// SharesMemory reports whether the ranks that it joins can read each other's windows: its links
	// are Lenders. Between processes the windows must then be shared segments.
	SharesMemory() bool
	// Locate returns the IP addresses at which this process may reach the process with the given
	// address, nearest first; none where the path leads through no network.
	Locate(peer []byte) []netip.Addr
	// Connect opens a link for one session. Both sides call it, in any order and concurrently with
	// other calls. It returns when both have called it, or with an error that names what is missing
	// when ctx ends first. With Session.OnUse it may return before. If ctx ends with a GivenUp as
	// its cause, a peer that calls it later learns the reason, by the error or from its link.
	Connect(ctx context.Context, peer []byte, s Session) (Link, error)
	// Close ends all links and the fabric.
	Close() error
}

// Registrar is a Fabric with Gatherers. They send in place from memory that it has access to.
type Registrar interface {
	// Pin gives access to memory, also to what connections need later. What is too short to be
	// worth it, it ignores. After an error the memory is sent as any other, at least by some paths,
	// and the user has been told once.
	Pin(memory []byte) error
	// Unpin ends the access to memory that Pin was given, and does nothing otherwise. After an
	// error the memory may still be read: it must not be freed.
	Unpin(memory []byte) error
}

// Poller is implemented by a fabric whose events come from the kernel rather than from memory.
type Poller interface {
	// Poll moves whatever it can without waiting and reports whether anything moved. Any thread may
	// call it.
	Poll() bool
	// Arm is called before sleeping on the doorbell: from then on an event rings the doorbell. It
	// is cheap when already armed.
	Arm()
	// Leave is called by a thread that ceases to poll. What was published and has not left yet
	// leaves all the same, although perhaps no thread polls for a long time. It is cheap where
	// everything has left.
	Leave()
}

// Door is a Fabric at which processes knock that no session joins it with yet.
type Door interface {
	// Admit has visit called for each process that knocks from now on, in a goroutine of its own;
	// visit owns the connection. Before, and with nil, visitors are turned away.
	Admit(visit func(net.Conn))
	// Knock connects with the process that has the given address. Both sides have proven that they
	// know it, and what fabrics prove otherwise. What is read and written is protected as fragments
	// are. Close of the fabric ends the connection.
	Knock(ctx context.Context, peer []byte) (net.Conn, error)
}
