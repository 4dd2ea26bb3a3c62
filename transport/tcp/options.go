package tcp

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/park"
)

// Options of a Fabric. Zero values mean the defaults.
type Options struct {
	// Bell of this process; required.
	Bell *park.Bell
	// Interfaces to listen on: names or prefixes of names ("eth0,ib"), exact names ("=eth0"), or
	// all but some ("^docker,lo"). Empty: all that are up and have an address, without those of
	// container bridges where others exist; loopback serves processes of the same host, and others
	// only if there is nothing else.
	Interfaces string
	// Port to listen on; 0 takes any free one.
	Port int
	// DialTimeout is how long one address of a peer is tried (2 s).
	DialTimeout time.Duration
	// HelloTimeout is how long an accepted connection may stay silent (0.5 s); a dialer speaks at
	// once.
	HelloTimeout time.Duration
	// HandshakeTimeout is how long a new connection has to prove who it is (5 s).
	HandshakeTimeout time.Duration
	// MaxUnauthenticated is how many accepted connections may be silent, and how many more may have
	// said hello and not proven who they are, at the same time (256). When one more comes the
	// oldest is closed.
	MaxUnauthenticated int
	// PeerTimeout is how long a peer's host may stay silent, data or keep-alive probes
	// unacknowledged, until it counts as lost (30 s).
	PeerTimeout time.Duration
	// Linger is how long Close tries to bring what was committed to the peers (5 s).
	Linger time.Duration
	// Track, if set, is told of every socket that carries frames or listens: a forked child must
	// close them, or peers would not notice that this process died. It must be quick and may be
	// called by any thread.
	Track func(fd int, open bool)
}

// EnsureDefaults replaces zero values by the defaults.
func (o *Options) EnsureDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.DialTimeout, 2*time.Second)
	def(&o.HelloTimeout, 500*time.Millisecond)
	def(&o.HandshakeTimeout, 5*time.Second)
	def(&o.PeerTimeout, 30*time.Second)
	def(&o.Linger, 5*time.Second)
	if o.MaxUnauthenticated == 0 {
		o.MaxUnauthenticated = 256
	}
	if o.Track == nil {
		o.Track = func(int, bool) {}
	}
}

// Validate says what cannot be right.
func (o *Options) Validate() error {
	switch {
	case o.Bell == nil:
		return fault.New(fault.Invalid, "tcp: Options.Bell is nil; pass the park.Bell of this process")
	case o.Port < 0 || o.Port > 65535:
		return fault.New(fault.Invalid, "tcp: port %d is not between 0 and 65535", o.Port)
	case o.DialTimeout < 0 || o.HelloTimeout < 0 || o.HandshakeTimeout < 0 || o.PeerTimeout < 0 || o.Linger < 0:
		return fault.New(fault.Invalid, "tcp: a timeout is negative")
	case o.MaxUnauthenticated < 0:
		return fault.New(fault.Invalid, "tcp: MaxUnauthenticated is negative")
	}
	_, err := parseSelector(o.Interfaces)
	return err
}
