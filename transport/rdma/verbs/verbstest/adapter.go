package verbstest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// host is a process on a machine of its own.
type host struct {
	n        *Network
	index    int
	adapters []*adapter
	contexts map[*context]bool // that are not closed
	locked   int64             // bytes that are registered
	killed   bool
	arrivals []ending
	notices  Notices

	faulty   atomic.Bool // what follows is not empty
	mu       sync.Mutex  // guards it
	refusals []refusal
	tap      func(verbs.Write)
	writes   []ending
}

// adapter is one of a host.
type adapter struct {
	h      *host
	index  int
	name   string
	ports  []verbs.Port
	pairs  map[uint32]*pair // that are not closed, by number
	number uint32           // of the last pair
	fatal  atomic.Bool
}

func (n *Network) newHost(index int) *host {
	h := &host{n: n, index: index, contexts: map[*context]bool{}}
	for i := range n.o.Adapters {
		a := &adapter{h: h, index: i, name: fmt.Sprintf("fake_%d", i), pairs: map[uint32]*pair{}, number: 16}
		for number := 1; number <= n.o.Ports; number++ {
			a.ports = append(a.ports, n.newPort(byte(index), byte(i), byte(number)))
		}
		for i := range a.ports {
			n.addPort(a, &a.ports[i])
		}
		h.adapters = append(h.adapters, a)
	}
	return h
}

// addPort lets packets find a port.
func (n *Network) addPort(a *adapter, p *verbs.Port) {
	for _, g := range p.GIDs {
		n.places[address{gid: g.Value, kind: g.Kind}] = place{a, p}
	}
	if p.LID != 0 {
		n.places[address{lid: p.LID}] = place{a, p}
	}
}

// newPort makes a port with the addresses that a usual one has, in a table with gaps.
func (n *Network) newPort(host, adapter, number byte) verbs.Port {
	p := verbs.Port{
		Number: int(number), Active: true, State: "active", Ethernet: !n.o.InfiniBand, MTU: n.o.MTU,
		Message: n.o.Message, Rate: 100_000,
	}
	local := [16]byte{0xfe, 0x80, 13: host, 14: adapter, 15: number}
	if n.o.InfiniBand {
		p.LID = uint16(host)<<8 | uint16(adapter)<<4 | uint16(number)
		p.GIDs = []verbs.GID{{Value: local}}
		return p
	}
	mapped := [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: host, 14: adapter, 15: number}
	on := fmt.Sprintf("eth%d", int(adapter)*n.o.Ports+int(number)-1)
	p.GIDs = []verbs.GID{
		{Index: 0, Value: local, Kind: verbs.RoCEv1, Interface: on},
		{Index: 1, Value: local, Kind: verbs.RoCEv2, Interface: on},
		{Index: 4, Value: mapped, Kind: verbs.RoCEv1, Interface: on},
		{Index: 5, Value: mapped, Kind: verbs.RoCEv2, Interface: on},
	}
	return p
}

func (h *host) Devices() ([]verbs.Device, error) {
	if err := h.refuses("Devices"); err != nil {
		return nil, err
	}
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	var all []verbs.Device
	for _, a := range h.adapters {
		all = append(all, a.describe())
	}
	return all, nil
}

func (h *host) Open(name string) (verbs.Context, error) {
	if err := h.refuses("Open"); err != nil {
		return nil, err
	}
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if h.killed {
		return nil, dead()
	}
	for _, a := range h.adapters {
		if a.name != name {
			continue
		}
		b, err := newBell()
		if err != nil {
			return nil, fault.Wrap(fault.System, err, "opening adapter %s", name)
		}
		c := &context{a: a, bell: b, regions: map[uint32]*region{}, local: map[uint32]*region{},
			completions: map[*completions]bool{}, receives: map[*receives]bool{}}
		h.contexts[c] = true
		return c, nil
	}
	return nil, fault.Wrap(fault.System, unix.ENODEV, "opening adapter %s", name)
}

// describe says of an adapter what is so now.
func (a *adapter) describe() verbs.Device {
	o := &a.h.n.o
	d := verbs.Device{
		Name: a.name, Node: -1, PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+a.index), Pairs: o.Pairs, Entries: o.Entries,
		Posted: o.Posted, Receive: o.Receive, Regions: o.Regions,
	}
	for _, p := range a.ports {
		p.GIDs = append([]verbs.GID(nil), p.GIDs...)
		d.Ports = append(d.Ports, p)
	}
	return d
}

// port returns a port by its number.
func (a *adapter) port(number int) *verbs.Port {
	if number < 1 || number > len(a.ports) {
		return nil
	}
	return &a.ports[number-1]
}

// raise gives an event to all that have the adapter open.
func (a *adapter) raise(e verbs.Event) {
	for c := range a.h.contexts {
		if c.a == a && !c.killed.Load() {
			c.raise(e)
		}
	}
}
