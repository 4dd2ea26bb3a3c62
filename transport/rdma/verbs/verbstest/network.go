package verbstest

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// Options describes the machines.
type Options struct {
	Seed       uint64 // of the order in which writes are executed
	Hosts      int    // 2, at most 256
	Adapters   int    // of a host; 1. Negative: none
	Ports      int    // of an adapter; 1
	InfiniBand bool   // rather than RoCE
	// Patience is the longest time that anything is tried again, whatever Timing says; 200 ms.
	Patience time.Duration
	// Delay is the longest time that the network sleeps between two steps, which it does now and
	// then; 100 µs. Negative: never.
	Delay time.Duration

	// DMABuf finds the memory behind a descriptor, for adapters to register; nil: they cannot.
	// there reports whether it still is that memory. PeerMemory finds memory of a device by its
	// address; nil: the kernel has no module for it.
	DMABuf     func(descriptor int) (memory []byte, there func() bool, err error)
	PeerMemory func(at uint64, bytes int) (memory []byte, there func() bool, err error)

	// Limits of a host and of its adapters.
	Locked  int64 // bytes that a host may register; 1 GiB
	Message int   // bytes of the longest write; 16 MiB
	MTU     int   // 4096
	Pairs   int   // 1024
	Entries int   // of a completion queue; 32768
	Posted  int   // to a pair; 8192
	Receive int   // entries of a shared receive queue; 32768
	Regions int   // 4096
	Inline  int   // bytes that a write may carry inline; 220. Negative: none
}

// ensureDefaults replaces zeros.
func (o *Options) ensureDefaults() {
	o.Hosts = cmp.Or(o.Hosts, 2)
	o.Adapters = max(cmp.Or(o.Adapters, 1), 0)
	o.Ports = cmp.Or(o.Ports, 1)
	o.Patience = cmp.Or(o.Patience, 200*time.Millisecond)
	o.Delay = cmp.Or(o.Delay, 100*time.Microsecond)
	o.Locked = cmp.Or(o.Locked, 1<<30)
	o.Message = cmp.Or(o.Message, 16<<20)
	o.MTU = cmp.Or(o.MTU, 4096)
	o.Pairs = cmp.Or(o.Pairs, 1024)
	o.Entries = cmp.Or(o.Entries, 32768)
	o.Posted = cmp.Or(o.Posted, 8192)
	o.Receive = cmp.Or(o.Receive, 32768)
	o.Regions = cmp.Or(o.Regions, 4096)
	o.Inline = max(cmp.Or(o.Inline, 220), 0)
}

// Network is machines with adapters, and what connects them.
//
// Locks are taken in this order: Network.mu, completions.mu, host.mu, reports.mu.
type Network struct {
	o       Options
	bell    *bell         // tells the engine to look again
	ended   chan struct{} // closed when the engine has ended
	reports reports

	mu      sync.Mutex // guards everything below and all that contexts have made, but for completions
	random  *rand.Rand
	closed  bool
	hosts   []*host
	pairs   []*pair         // that are not closed
	cut     map[[2]int]bool // from a host to a host
	silent  map[*verbs.Port]bool
	carried map[*verbs.Port]Traffic
	places  map[address]place
	copying bool       // the engine copies, without mu
	idle    *sync.Cond // it has stopped to copy
	late    []late     // notices that are not yet given
	steps   []step     // of the engine, to choose from
	streams uint64     // random ones so far

	renumbered int // ports
}

// New makes a network. Close ends it.
func New(o Options) *Network {
	o.ensureDefaults()
	b, err := newBell()
	if err != nil {
		panic("verbstest: no pipe: " + err.Error())
	}
	n := &Network{
		o: o, bell: b, ended: make(chan struct{}),
		random: rand.New(rand.NewPCG(o.Seed, 0)), cut: map[[2]int]bool{}, places: map[address]place{},
		silent: map[*verbs.Port]bool{}, carried: map[*verbs.Port]Traffic{},
	}
	n.idle = sync.NewCond(&n.mu)
	for i := range o.Hosts {
		n.hosts = append(n.hosts, n.newHost(i))
	}
	go n.run()
	return n
}

// Host returns the adapters of a host.
func (n *Network) Host(i int) verbs.Library { return n.hosts[i] }

// Close ends the network, with whatever is posted, and gives its descriptors back.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.wake()
	<-n.ended
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bell.close()
	for _, h := range n.hosts {
		for c := range h.contexts {
			c.bell.close()
			for q := range c.completions {
				q.end()
			}
		}
	}
}

// Traffic is what has arrived.
type Traffic struct{ Writes, Bytes int }

// Carried returns what has arrived that a port of a host has sent.
func (n *Network) Carried(host, adapter, port int) Traffic {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.carried[n.hosts[host].adapters[adapter].port(port)]
}

// wake makes the engine look again. It is a descriptor that wakes the engine, because a channel
// would tell whoever posts also what the engine has done: that is for completions to tell.
func (n *Network) wake() { n.bell.ring() }

// settle waits until no memory is being copied. Who then takes something away, with mu, can be sure
// that nothing touches it.
func (n *Network) settle() {
	for n.copying {
		n.idle.Wait()
	}
}
