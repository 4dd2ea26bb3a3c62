package tcp

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

// Options configures a Fabric. Zero values mean the defaults.
type Options struct {
	// Doorbell is the doorbell of this process; required.
	Doorbell *park.Doorbell
	// Interfaces selects the interfaces to listen on: names or prefixes of names ("eth0,ib"), exact
	// names ("=eth0"), or all but some ("^docker,lo"). If it is empty, these are all interfaces
	// that are up and have an address, container bridges after all others. Loopback
	// serves processes of the same host; it serves others only if there is no other interface.
	Interfaces string
	// Port is the port to listen on; 0 takes any free one. With LastPort it is the first one of a
	// range, of which the first free one is taken.
	Port, LastPort int
	// Family restricts the addresses to "ipv4" or "ipv6".
	Family string
	// Streams is the number of sockets between two processes on different wires, or on the same one
	// where there are fewer: for networks that limit each connection. 0 takes one for each wire
	// that is about as fast as the best one.
	Streams int
	// Congestion names the congestion control of connections that carry frames; SystemCongestion is
	// the one of the system. If it is empty, they have that of the system, but where it paces them
	// (BBR) and their round trip is below ShortPath, they have cubic, or reno where the system
	// allows no cubic.
	Congestion string
	// DialTimeout is how long one address of a peer is tried (2 s).
	DialTimeout time.Duration
	// HelloTimeout is how long an accepted connection may stay silent (0.5 s); a dialer sends its
	// hello at once.
	HelloTimeout time.Duration
	// HandshakeTimeout is how long a new connection has to prove its identity (5 s).
	HandshakeTimeout time.Duration
	// MaxUnauthenticated is the number of accepted connections that may be silent at the same time,
	// and of those that have sent a hello but not proven their identity (256 each). One more closes
	// the oldest.
	MaxUnauthenticated int
	// PeerTimeout is how long a path may be silent, or stay broken, before the peer counts as lost
	// (10 s, at least 2 s).
	PeerTimeout time.Duration
	// Checksum adds a CRC-32C to every frame of this side. What arrives damaged is sent again.
	Checksum bool
	// TLS encrypts all connections, by TLS 1.3 with a certificate of each process; addresses carry
	// the hashes of the certificates. All processes need the same.
	TLS bool
	// SecretFile, if set, names a file with a secret that every process must know: then who has
	// read the addresses still cannot connect. Nobody but its owner may have access to it.
	SecretFile string
	// Linger is how long Close tries to deliver committed fragments to the peers (5 s).
	Linger time.Duration
	// Track, if set, is called with true for every socket that carries frames or listens, and with
	// false before it is closed: a forked child must close these sockets, or peers would not notice
	// the death of this process. Track must be quick and may be called by any thread.
	Track func(fd int, open bool)
	// Warn, if set, is called when something went wrong that was mended.
	Warn func(format string, args ...any)
	// Info, if set, is called with what was found out about the network.
	Info func(format string, args ...any)
}

// LeastPeerTimeout is the smallest Options.PeerTimeout. It leaves time for the kernel to send data
// twice.
const LeastPeerTimeout = 2 * time.Second

const mostPort = 1<<16 - 1

// silence is how long one socket may be silent before another one is tried.
func (o *Options) silence() time.Duration { return o.PeerTimeout / 4 }

// EnsureDefaults replaces zero values with the defaults.
func (o *Options) EnsureDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.DialTimeout, 2*time.Second)
	def(&o.HelloTimeout, 500*time.Millisecond)
	def(&o.HandshakeTimeout, 5*time.Second)
	def(&o.PeerTimeout, 10*time.Second)
	def(&o.Linger, 5*time.Second)
	if o.MaxUnauthenticated == 0 {
		o.MaxUnauthenticated = 256
	}
	if o.Track == nil {
		o.Track = func(int, bool) {}
	}
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	if o.Info == nil {
		o.Info = func(string, ...any) {}
	}
}

// Validate returns an error if an option is invalid.
func (o *Options) Validate() error {
	switch {
	case o.Doorbell == nil:
		return fault.New(fault.Invalid, "tcp: there is no doorbell; pass that of this process")
	case o.Port < 0 || o.Port > mostPort:
		return fault.New(fault.Invalid, "tcp: port %d is not between 0 and %d", o.Port, mostPort)
	case o.LastPort != 0 && (o.Port == 0 || o.LastPort < o.Port || o.LastPort > mostPort):
		return fault.New(fault.Invalid, "tcp: %d to %d is no range of ports", o.Port, o.LastPort)
	case o.Family != "" && o.Family != "ipv4" && o.Family != "ipv6":
		return fault.New(fault.Invalid, "tcp: family %q is not ipv4 or ipv6", o.Family)
	case o.Streams < 0 || o.Streams > MostStreams:
		return fault.New(fault.Invalid, "tcp: %d sockets between two processes; allowed are 1 to %d", o.Streams, MostStreams)
	case o.DialTimeout < 0 || o.HelloTimeout < 0 || o.HandshakeTimeout < 0 || o.PeerTimeout < 0 || o.Linger < 0:
		return fault.New(fault.Invalid, "tcp: a timeout is negative")
	case o.PeerTimeout < LeastPeerTimeout:
		return fault.New(fault.Invalid, "tcp: a peer cannot be given up after %v; allowed are %v and more",
			o.PeerTimeout, LeastPeerTimeout)
	case o.MaxUnauthenticated < 0:
		return fault.New(fault.Invalid, "tcp: MaxUnauthenticated is negative")
	}
	_, err := parseSelector(o.Interfaces)
	return err
}
