package verbs

import "net/netip"

// Library is what offers adapters.
type Library interface {
	// Devices returns the adapters of this machine with their ports; none is no error.
	Devices() ([]Device, error)
	// Open opens an adapter by its name.
	Open(name string) (Context, error)
}

// Device describes an adapter.
type Device struct {
	Name    string   // "mlx5_0"
	Node    int      // of memory that it is near to, -1 if unknown
	PCI     string   // "0000:65:00.0", empty if it has none
	Path    []string // on the PCI bus, from the root complex to itself (probe.BusPath); nil if unknown
	Pairs   int      // at most
	Entries int      // of one completion queue, at most
	Posted  int      // to one pair, at most
	Receive int      // entries of one shared receive queue, at most
	Regions int      // at most
	Ports   []Port
}

// Port is a port of an adapter, numbered from 1.
type Port struct {
	Number   int
	Active   bool
	State    string // "active", "down", "initialising" …
	Ethernet bool   // RoCE rather than InfiniBand
	LID      uint16 // on InfiniBand
	MTU      int    // bytes, active
	Message  int    // bytes of the longest one
	Rate     int    // Mbit/s, 0 if unknown
	GIDs     []GID  // those that are not zero
}

// GID is an entry of a port's table of addresses.
type GID struct {
	Index     int
	Value     [16]byte
	Kind      GIDKind
	Interface string // network interface, empty if unknown
}

// Addr returns the value as an IP address, IPv4 where it is mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g.Value).Unmap() }

// GIDKind says what packets with a GID look like.
type GIDKind uint8

// The kinds.
const (
	InfiniBand GIDKind = iota
	RoCEv1
	RoCEv2
)

// String returns "IB", "RoCE v1" or "RoCE v2".
func (k GIDKind) String() string {
	return [...]string{"IB", "RoCE v1", "RoCE v2"}[k]
}

// Context is an open adapter, with a protection domain of its own.
type Context interface {
	// Device returns what Devices has said of the adapter, as of now.
	Device() (Device, error)
	// Register pins memory and lets the adapter read it; with remote, peers may write to it.
	// Nothing else is ever allowed.
	Register(memory []byte, remote bool) (Region, error)
	// NewCompletions makes a completion queue.
	NewCompletions(entries int) (Completions, error)
	// NewReceives makes a shared receive queue.
	NewReceives(entries int) (Receives, error)
	// NewPair makes a queue pair, not connected, whose sends and receives complete in one queue.
	NewPair(o PairOptions) (Pair, error)
	// Events is a descriptor that is readable while Event has something to return.
	Events() int
	// Event returns the next asynchronous event; ok is false if there is none. It does not wait.
	Event() (e Event, ok bool, err error)
	Close() error
}

// Holder is a Context with open files. A forked child must close its copies, as those of
// Completions.Descriptor: while it has them, the pairs outlive a parent that dies, and answer.
type Holder interface {
	Descriptors() []int
}

// DeviceRegistrar is a Context that registers memory of devices, for its adapter to read. What the
// system or the adapter cannot do is NotSupported.
type DeviceRegistrar interface {
	// RegisterDMABuf registers bytes of a dma-buf from an offset on. In pieces, their addresses
	// begin at at, which has the same place in a page of memory. The descriptor stays the caller's,
	// who may close it afterwards.
	RegisterDMABuf(descriptor int, offset uint64, bytes int, at uint64) (Region, error)
	// RegisterAddress registers memory of a device by its address in this process, where a module
	// of the device's driver (nvidia_peermem) has the kernel find it.
	RegisterAddress(at uint64, bytes int) (Region, error)
}

// Region is registered memory.
type Region interface {
	Local() uint32  // its key in own pieces
	Remote() uint32 // its key in the writes of peers
	Close() error
}

// Completions is a completion queue with a descriptor that tells of them.
type Completions interface {
	// Entries returns how many completions there is room for.
	Entries() int
	// Poll takes up to len(into) completions and returns how many. It allocates nothing.
	Poll(into []Completion) (int, error)
	// Arm asks for one notice: Descriptor becomes readable with the next completion. What has come
	// before that Poll has not taken may or may not make it so; a thread polls again after Arm.
	Arm() error
	Descriptor() int
	// Take takes the notices that have arrived; the descriptor is no longer readable. It does not
	// wait.
	Take() error
	Close() error
}

// Receives is a shared receive queue. Its entries have no memory: they take immediates.
type Receives interface {
	// Post adds n entries. There is room for another one when an arrival was polled.
	Post(n int) error
	Close() error
}

// PairOptions says what a pair is made of. All of it is of one Context.
type PairOptions struct {
	Completions Completions
	Receives    Receives
	Posted      int // writes that may be posted and not complete
	Inline      int // bytes that a write may carry inline; the pair may allow more
}

// Pair is a reliable connected queue pair.
type Pair interface {
	// Number identifies the pair on its adapter, 24 bits.
	Number() uint32
	// Inline returns how many bytes a write may carry inline.
	Inline() int
	// Connect makes the pair ready to receive and to send. It does not wait for the peer. Before
	// it, Post is an error.
	Connect(c Connection) error
	// Post posts writes, in their order, and returns how many of them; fewer only with an error. It
	// does not wait and allocates nothing. A write keeps its place among PairOptions.Posted until
	// its completion was polled, or that of a later one of the pair.
	Post(writes []Write) (int, error)
	// Fail moves the pair to the error state: all that was posted completes, what has not ended
	// with Flushed.
	Fail() error
	// Close destroys the pair. Its completions may still be in the queue, or be gone: then nobody
	// is told of the entries that its arrivals have taken.
	Close() error
}

// Connection is what a pair needs to know to be connected.
type Connection struct {
	Port     int // own one
	GID      int // index of this side's; on InfiniBand without a route it does not matter
	MTU      int // bytes: the smaller one of both ports
	Sequence uint32
	Remote   Remote
	Timing   Timing
	Class    uint8 // traffic class
	Service  uint8 // service level
}

// Remote is the other end.
type Remote struct {
	Pair     uint32
	Sequence uint32 // its Connection.Sequence
	LID      uint16
	GID      [16]byte // zero: only the LID counts
}

// Timing is how long a pair tries. The field's own units: 4.096 µs × 2^Timeout, and tries.
type Timing struct {
	Timeout  uint8 // at most 31
	Retries  uint8 // at most 7
	NotReady uint8 // tries while the peer has no entry in its receive queue; 7 is for ever
}

// Write is one RDMA write.
type Write struct {
	Cookie    uint64
	From      [2]Piece // in turn; the second may be empty
	To        uint64   // address in the peer's process
	Key       uint32   // Region.Remote of the peer
	Immediate uint32
	Tell      bool // with the immediate: it takes an entry of the peer's receive queue
	Inline    bool // the memory is read during Post, its key does not matter
	Complete  bool // it makes a completion also when it succeeds
}

// Piece is registered memory of this process.
type Piece struct {
	At    uint64 // address, of memory that does not move: never of a goroutine's stack
	Bytes uint32
	Key   uint32 // Region.Local
}

// Completion is the end of a write, or the arrival of an immediate.
type Completion struct {
	Cookie    uint64 // of the write; NoCookie for a receive that failed; undefined for an arrival
	Pair      uint32 // Pair.Number of this side's pair
	Status    Status
	Vendor    uint32 // the adapter's own code of an error
	Arrival   bool   // valid only if Status is Success
	Immediate uint32 // of an arrival
	Bytes     uint32 // of an arrival: how many were written
}

// NoCookie is what an entry of a receive queue completes with if it fails; no write has it.
const NoCookie = ^uint64(0)

// Status says how something ended, in the numbers of enum ibv_wc_status.
type Status uint32

// The statuses that the transport tells apart.
const (
	Success         Status = 0
	LocalLength     Status = 1
	LocalOperation  Status = 2
	LocalProtection Status = 4
	Flushed         Status = 5
	BadResponse     Status = 7
	LocalAccess     Status = 8
	RemoteInvalid   Status = 9
	RemoteAccess    Status = 10
	RemoteOperation Status = 11
	RetriesExceeded Status = 12
	NotReady        Status = 13
	RemoteAborted   Status = 16
	Fatal           Status = 19
	ResponseTimeout Status = 20
	General         Status = 21
)

// Event is an asynchronous event of an adapter.
type Event struct {
	Kind EventKind
	Port int    // where it is of a port
	Pair uint32 // where it is of a pair
}

// EventKind says what has happened, in the numbers of enum ibv_event_type.
type EventKind int

// The kinds that the transport tells apart.
const (
	CompletionsFailed EventKind = 0
	PairFatal         EventKind = 1
	PairRequest       EventKind = 2
	PairAccess        EventKind = 3
	DeviceFatal       EventKind = 8
	PortActive        EventKind = 9
	PortError         EventKind = 10
	LIDChange         EventKind = 11
	ReceivesFailed    EventKind = 14
	GIDChange         EventKind = 18
)
