package network

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
)

// Machine is one machine, as it was found.
type Machine struct {
	Name    string
	Parts   *topo.Machine
	Rates   topo.Rates
	Devices []topo.Device
}

// Found returns the network within a machine, of which the cores are the ranks: each is connected
// with the caches that it shares, these with the memory of their NUMA node, and that with the other
// nodes and, over the bridges of the bus, with the devices; interfaces and adapters lead to the
// network outside.
//
// Half of Rates.Handover is spent on each side of a cache. The rate of a link that nobody has
// measured or told is that of the memory behind it, and its class says so.
func Found(m *Machine) (*Topology, error) {
	f := &finding{Topology: &Topology{Name: m.Name, Limits: limitsOf(m.Parts)}, m: m, nodes: map[string]int{}}
	f.one = cmp.Or(m.Rates.One, unknownRate)
	if m.Rates.One == 0 {
		f.unknown = ofUnknownRate
	}
	f.all = cmp.Or(m.Rates.All, f.one)
	f.cores()
	f.memories()
	for i := range m.Devices {
		f.device(&m.Devices[i])
	}
	f.lanes()
	return f.Topology, f.Validate()
}

// What a core is taken to copy, in bytes a second, if nobody has measured it, and the end of the
// names of classes whose rates are not measured.
const (
	unknownRate   = 10e9
	ofUnknownRate = "-of-unknown-rate"
)

// Unmeasured reports whether the bandwidth of a class is neither measured nor told by anybody.
func (c *Class) Unmeasured() bool { return strings.HasSuffix(c.Name, ofUnknownRate) }

// finding is a Topology that is being made of what was found.
type finding struct {
	*Topology
	m        *Machine
	one, all float64
	unknown  string         // what the names of classes end with whose rates follow from these
	nodes    map[string]int // by name
	home     map[int]int    // the memory that a processor is near to, by processor
	memory   []int          // by position in Parts.Nodes; one where the system reports none
}

// class returns the class with a name, which is made if it is not there.
func (f *finding) class(name string, alpha, bandwidth float64) int {
	for i, c := range f.Classes {
		if c.Name == name {
			return i
		}
	}
	return f.AddClass(name, alpha, bandwidth)
}

// node returns the node with a name, which is made if it is not there.
func (f *finding) node(n Node) (index int, made bool) {
	if at, there := f.nodes[n.Name]; there {
		return at, false
	}
	f.nodes[n.Name] = f.AddNode(n)
	return f.nodes[n.Name], true
}

// groups returns the processors that this process may use, by core: those that share a first-level
// cache are one core.
func (f *finding) groups() (cores [][]int) {
	mine := map[int]bool{}
	for _, p := range f.m.Parts.Processors {
		mine[p] = true
	}
	for _, c := range f.m.Parts.Caches {
		if c.Level != 1 {
			continue
		}
		var of []int
		for _, p := range c.Processors {
			if mine[p] {
				of = append(of, p)
				delete(mine, p)
			}
		}
		if of != nil {
			cores = append(cores, of)
		}
	}
	for _, p := range f.m.Parts.Processors {
		if mine[p] {
			cores = append(cores, []int{p})
		}
	}
	slices.SortFunc(cores, func(a, b []int) int { return a[0] - b[0] })
	return cores
}

// cores makes the ranks, and connects them with the caches that they share.
func (f *finding) cores() {
	f.home = map[int]int{}
	for _, processors := range f.groups() {
		first := processors[0]
		at := f.AddNode(Node{Name: "core" + strconv.Itoa(first), Rank: true, Part: Core})
		class := f.class("core"+f.unknown, f.m.Rates.Handover/2, f.one)
		for _, c := range f.m.Parts.Caches { // from the smallest
			if c.Level == 1 || !slices.Contains(c.Processors, first) || !f.shared(c) {
				continue
			}
			name := fmt.Sprintf("L%d.%d", c.Level, c.Processors[0])
			cache, made := f.node(Node{Name: name, Part: Cache, Bytes: c.Bytes})
			f.AddDuplex(at, cache, class)
			at, class = cache, f.class("cache"+f.unknown, 0, f.all)
			if !made { // and so all above it
				at = -1
				break
			}
		}
		f.home[first] = at
	}
}

// shared reports whether several cores have a cache, or the system has no larger one.
func (f *finding) shared(c topo.Cache) bool {
	last := f.m.Parts.Caches[len(f.m.Parts.Caches)-1].Level
	return c.Level == last || len(c.Processors) > len(f.m.Parts.Cache(1).Processors)
}

// memories makes the memory of each NUMA node, and connects the caches, or cores, that are near.
func (f *finding) memories() {
	near := f.m.Parts.Nodes
	if len(near) == 0 {
		near = []topo.Node{{Processors: f.m.Parts.Processors}}
	}
	each := f.all / float64(len(near))
	for _, n := range near {
		memory, _ := f.node(Node{Name: "memory" + strconv.Itoa(n.ID), Part: Memory, Bytes: min(n.Bytes, MaxBytes)})
		for _, p := range n.Processors {
			if at, known := f.home[p]; known && at >= 0 {
				f.AddDuplex(at, memory, f.class("memory"+f.unknown, 0, each))
			}
		}
		for _, other := range f.memory {
			f.AddDuplex(other, memory, f.class("between-nodes"+ofUnknownRate, 0, each))
		}
		f.memory = append(f.memory, memory)
	}
}

// device makes a device, and the bridges between it and the memory.
func (f *finding) device(d *topo.Device) {
	at := f.memory[0]
	for i, n := range f.m.Parts.Nodes {
		if n.ID == d.Node {
			at = f.memory[i]
		}
	}
	path := d.Bus
	if len(path) > 0 {
		path = path[:len(path)-1] // without itself
	}
	bus := f.class("bus"+ofUnknownRate, 0, f.all)
	for _, name := range path {
		bridge, made := f.node(Node{Name: Name(name), Part: Bridge})
		if made {
			f.AddDuplex(at, bridge, bus)
		}
		at = bridge
	}
	own, made := f.node(Node{Name: Name(d.Name), Part: Part(d.Kind)})
	if !made {
		return
	}
	if d.Slot > 0 {
		bus = f.class("bus-"+rateName(d.Slot), 0, d.Slot)
	}
	f.AddDuplex(at, own, bus)
	if d.Wire > 0 {
		outside, _ := f.node(Node{Name: "network", Part: Outside})
		f.AddDuplex(own, outside, f.class("wire-"+rateName(d.Wire), 0, d.Wire))
	}
}

// lanes connects the GPUs with each other, and with the switches between them, which are one.
func (f *finding) lanes() {
	at := map[string]int{} // by the address on the bus
	for _, d := range f.m.Devices {
		if d.Kind == topo.GPU && len(d.Bus) > 0 {
			at[d.Bus[len(d.Bus)-1]] = f.nodes[Name(d.Name)]
		}
	}
	connected := map[[2]int]bool{}
	for _, d := range f.m.Devices {
		own, switched := f.nodes[Name(d.Name)], topo.Lane{}
		for _, l := range d.Lanes {
			other, known := at[l.To]
			ends := [2]int{min(own, other), max(own, other)}
			switch {
			case !known:
				switched.Count += l.Count
				switched.Rate += l.Rate
			case other != own && !connected[ends]:
				connected[ends] = true
				f.AddDuplex(own, other, f.lane(l))
			}
		}
		if switched.Count > 0 {
			middle, _ := f.node(Node{Name: nvSwitch})
			f.AddDuplex(own, middle, f.lane(switched))
		}
	}
}

const nvSwitch = "nvswitch" // the name of the node that all of them are

func (f *finding) lane(l topo.Lane) int {
	if l.Rate == 0 {
		return f.class(fmt.Sprintf("nvlink-x%d%s", l.Count, ofUnknownRate), 0, float64(l.Count)*unknownLink)
	}
	return f.class("nvlink-"+rateName(l.Rate), 0, l.Rate)
}

// Name makes a name that networks and nodes can have of one of the system.
func Name(name string) string {
	name = strings.Map(func(r rune) rune {
		if validName(string(r)) {
			return r
		}
		return '_'
	}, name)
	return cmp.Or(name[:min(len(name), MaxName)], "_")
}

// rateName is the name of a rate in those of classes: 25G for 25 Gbit a second.
func rateName(rate float64) string {
	bits := rate * 8
	for _, u := range []struct {
		factor float64
		letter string
	}{{1e9, "G"}, {1e6, "M"}} {
		if bits >= u.factor {
			return strconv.FormatFloat(bits/u.factor, 'g', 4, 64) + u.letter
		}
	}
	return strconv.FormatFloat(bits, 'g', 4, 64)
}
