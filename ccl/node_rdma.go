package ccl

import (
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// openRDMA opens RDMA, and TCP below it. Where the machine has no adapter that can be used, the
// error is a fault.NotSupported.
func (n *Node) openRDMA(opts *Options) (transport.Fabric, error) {
	if opts.TLS {
		return nil, fault.New(fault.NotSupported,
			"adapters do not encrypt, and GOCCL_TLS=1 asks for it; GOCCL_TRANSPORT=tcp does")
	}
	library, err := openVerbs()
	if err != nil {
		return nil, err
	}
	wishes, err := opts.Adapters()
	if err != nil {
		return nil, err
	}
	if _, err := rdma.Find(library, wishes); err != nil {
		return nil, err
	}
	_, shared := n.fabrics["tcp"]
	base, err := n.openTCP(opts)
	if err != nil {
		return nil, err
	}
	f, err := rdma.New(rdma.Options{TCP: base, Library: library, Wishes: wishes, Doorbell: n.doorbell,
		Seat: n.seat.Load, Track: n.track, Timeout: uint8(opts.IBTimeout), Retries: uint8(opts.IBRetryCnt),
		Class: uint8(opts.IBTC), Service: uint8(opts.IBSL),
		Warn: n.printer(opts, "WARN"), Info: n.printer(opts, "INFO")})
	if err != nil {
		if !shared {
			base.Close()
		}
		return nil, err
	}
	n.opened("tcp", base, opts)
	if arena := n.registered(); arena != nil {
		arena.Watch(f)
	}
	return f, nil
}

// sit notes where this process is on its machine, for the choice of ports. The first group decides.
func (n *Node) sit(cfg *Config, group *topo.Group) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seat.Load() == nil && n.fabrics["rdma"] != nil {
		n.seat.Store(SeatOf(cfg.Bus, group.LocalRank(cfg.Rank)))
	}
}

// SeatOf returns where a process is: near to its GPU on the PCI bus, "" for none, or else to its
// cores. local is its number among the ranks of the machine.
func SeatOf(bus string, local int) *rdma.Seat {
	s := &rdma.Seat{Node: -1, Local: local}
	if bus != "" {
		s.Path, s.Node = probe.OnBus("/", bus)
	}
	if s.Path == nil {
		s.Node = mem.ProbeHome("/").Node
	}
	return s
}

// withoutRDMA returns why a peer that TCP reaches is not reached by RDMA; "" if it was not to be.
func (e *Endpoint) withoutRDMA(peer int) string {
	e.node.mu.Lock()
	defer e.node.mu.Unlock()
	switch {
	case !e.cfg.Options.allows("rdma"):
		return ""
	case e.node.fabrics["rdma"] != nil:
		return fmt.Sprintf("rank %d has no RDMA", peer)
	case e.node.noRDMA != nil:
		return e.node.noRDMA.Error()
	}
	return ""
}

// Adapters returns which ports of RDMA adapters groups may use.
func (o *NodeOptions) Adapters() (rdma.Wishes, error) {
	w := rdma.Wishes{GID: rdma.AnyGID, Family: o.SocketFamily}
	if o.IBGIDIndex != nil {
		w.GID = *o.IBGIDIndex
	}
	var err error
	w.Adapters, err = rdma.ParseAdapters(o.IBHCA)
	return w, err
}

// openVerbs is replaced by tests.
var openVerbs = verbs.Open
