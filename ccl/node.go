package ccl

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
	"github.com/goccl/goccl/transport/shm"
	"github.com/goccl/goccl/transport/tcp"
)

// Node is this process as a member of groups: its transports and its progress thread. All groups of a process share
// one; several Nodes in a process behave like several processes.
type Node struct {
	id       string
	bell     *park.Bell
	fabrics  []transport.Fabric // in the order of preference
	progress *exec.Progress
	pollers  []transport.Poller
	noShm    error        // why there is no shared memory here
	cache    topo.Cache   // the last one of this machine
	windows  atomic.Int64 // bytes of the windows of its groups
	arena    func() (*mem.Arena, error)

	mu     sync.Mutex
	closed bool
	comms  map[*Communicator]bool
}

// NewNode opens the transports of this process that opts allows.
func NewNode(opts Options) (*Node, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if spin, err := opts.spin(); err == nil && opts.Spin != "" {
		park.SetSpin(spin)
	}
	var id [8]byte
	rand.Read(id[:])
	n := &Node{id: hex.EncodeToString(id[:]), comms: map[*Communicator]bool{}, cache: probe.LastCache("/")}
	n.arena = sync.OnceValues(opts.newArena)
	if opts.allows("shm") {
		fabric, err := shm.New(shm.Options{Arena: n.registered})
		switch {
		case err == nil:
			n.bell = fabric.Bell()
			n.fabrics = append(n.fabrics, fabric)
		case opts.Transport == "shm":
			return nil, fault.Wrap(fault.System, err, "transport=shm: shared memory cannot be used here")
		default:
			n.noShm = err
		}
	}
	if n.bell == nil {
		n.bell = park.NewBell()
	}
	if opts.allows("inproc") {
		fabric := inproc.New(n.bell)
		fabric.Arena = n.registered
		n.fabrics = append([]transport.Fabric{fabric}, n.fabrics...)
	}
	if opts.allows("tcp") {
		fabric, err := tcp.New(tcp.Options{Bell: n.bell, Interfaces: opts.SocketIfname})
		if err != nil {
			n.Close()
			return nil, err
		}
		n.fabrics = append(n.fabrics, fabric)
	}
	for _, f := range n.fabrics {
		if p, ok := f.(transport.Poller); ok {
			n.pollers = append(n.pollers, p)
		}
	}
	n.progress = exec.NewProgress(n.bell, n.pollers)
	return n, nil
}

// Close closes the Communicators that are still open, and gives everything back.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	var open []*Communicator
	for c := range n.comms {
		open = append(open, c)
	}
	n.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	if n.progress != nil {
		n.progress.Close()
	}
	var first error
	for _, f := range n.fabrics {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	if err := n.registered().Close(); err != nil && first == nil {
		first = err
	}
	return first
}
