package rdma

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// Options configures a Fabric. Zero values mean the defaults.
type Options struct {
	// TCP is the fabric between the same processes, which stays the caller's; required.
	TCP Base
	// Library has the adapters; required.
	Library verbs.Library
	// Wishes says which ports are used.
	Wishes Wishes
	// Seat, if set, tells where the process is when the first link has adapters opened.
	Seat func() *Seat
	// Doorbell is the doorbell of this process; required.
	Doorbell *park.Doorbell
	// Pool is how much memory all ports together have for long fragments in each direction (8 MiB).
	Pool int
	// Timeout and Retries say after how long what is not acknowledged is sent again, 4.096 µs ×
	// 2^Timeout, and how often, before a path counts as broken (16 and 5: about 2 s).
	Timeout, Retries uint8
	// Class and Service are the traffic class and the service level of all packets.
	Class, Service uint8
	// Try is how long Connect waits for queue pairs before fragments begin by tcp (2 s).
	Try time.Duration
	// Linger is how long Close tries to deliver committed fragments to the peers (5 s).
	Linger time.Duration
	// Track, if set, is called with true for each descriptor by which an adapter is open, and with
	// false before it is closed: a forked child must close them, or queue pairs outlive this
	// process.
	Track func(fd int, open bool)
	// Warn, if set, is called when something went wrong that was mended.
	Warn func(format string, args ...any)
	// Info, if set, is called with what was found out about the paths.
	Info func(format string, args ...any)
}

// DefaultPool is the default of Options.Pool.
const DefaultPool = 8 << 20

// Base is the fabric that RDMA is the fast lane of.
type Base interface {
	transport.Fabric
	transport.Poller
}

// forEver is the number of tries while the peer has no receives: it computes, and posts none.
const forEver = 7

// timing returns how a queue pair tries.
func (o *Options) timing() verbs.Timing {
	return verbs.Timing{Timeout: o.Timeout, Retries: o.Retries, NotReady: forEver}
}

// EnsureDefaults replaces zero values with the defaults.
func (o *Options) EnsureDefaults() {
	if o.Pool == 0 {
		o.Pool = DefaultPool
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Retries == 0 {
		o.Retries = DefaultRetries
	}
	if o.Try == 0 {
		o.Try = 2 * time.Second
	}
	if o.Linger == 0 {
		o.Linger = 5 * time.Second
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
	case o.TCP == nil || o.Library == nil || o.Doorbell == nil:
		return fault.New(fault.Invalid, "rdma: TCP, a library and a doorbell are required")
	case o.Pool < 0 || o.Pool/longBytes > mostLong:
		return fault.New(fault.Invalid, "rdma: a pool of %d bytes; at most %d are possible", o.Pool, mostLong*longBytes)
	case o.Timeout < LeastTimeout || o.Timeout > MostTimeout || o.Retries > MostRetries || o.Service > MostService:
		return fault.New(fault.Invalid, "rdma: timeout %d, %d retries, service level %d; allowed are %d to %d, 1 to %d, 0 to %d",
			o.Timeout, o.Retries, o.Service, LeastTimeout, MostTimeout, MostRetries, MostService)
	case o.Try < 0 || o.Linger < 0:
		return fault.New(fault.Invalid, "rdma: a time is negative")
	}
	return nil
}
