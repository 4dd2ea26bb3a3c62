package network

import (
	"math"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/topo"
)

// Off is named in place of a network where nothing is to be looked at, and nothing measured.
const Off = "off"

// Described is what follows from a network for a group, or for the machine of one of its ranks.
type Described struct {
	Hosts int        // as many hosts or ranks may a group have; 0 if the network is one machine
	Cores int        // of a machine, if it has any
	Rates topo.Rates // of these; unknown if it does not tell
	path  Class      // between hosts; what is 0 it does not tell
}

// mostEnds is between how many ranks paths are looked at.
const mostEnds = 32

// Describe returns what follows from t for a group of a number of ranks. In a machine the ranks are
// cores or GPUs: it is one of several that are alike, and the fastest of its interfaces, or of its
// adapters without one, leads to the others. In any other network they are the hosts or the ranks
// of the group, from the first on, and the slowest of the paths between them counts, as it is if
// nobody else uses it.
func (t *Topology) Describe(ranks int) (*Described, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	d := &Described{}
	machine := false
	for i := range t.Nodes {
		n := &t.Nodes[i]
		machine = machine || n.Rank && n.Part != "" && n.Part != Host
		if n.Rank && n.Part == Core {
			d.Cores++
		}
	}
	if machine {
		d.Rates, d.path = t.rates(), t.wire()
		return d, nil
	}
	d.Hosts = t.Ranks()
	r, err := NewRouter(t)
	if err != nil {
		return nil, err
	}
	d.path.Bandwidth = math.Inf(1)
	among := min(d.Hosts, ranks)
	ends := min(among, mostEnds)
	for i := range ends {
		for j := range ends {
			if i == j {
				continue
			}
			links, err := r.Route(nil, i*among/ends, j*among/ends)
			if err != nil {
				return nil, err
			}
			d.pass(links, t)
		}
	}
	if math.IsInf(d.path.Bandwidth, 1) { // there is one rank
		d.path = Class{}
	}
	return d, nil
}

// pass notes a path, of which the slowest counts.
func (d *Described) pass(links []int32, t *Topology) {
	alpha := t.Startup
	for _, l := range links {
		c := &t.Classes[t.Links[l].Class]
		alpha += c.Alpha
		if c.Bandwidth < d.path.Bandwidth {
			d.path.Bandwidth, d.path.Burst = c.Bandwidth, c.Burst
		}
	}
	d.path.Alpha = max(d.path.Alpha, alpha)
}

// wire returns how a machine is connected with others: both of them have the same.
func (t *Topology) wire() (best Class) {
	found := Adapter
	for _, l := range t.Links {
		from, to, c := &t.Nodes[l.From], &t.Nodes[l.To], &t.Classes[l.Class]
		if to.Part != Outside || c.Unmeasured() || from.Part != Interface && from.Part != Adapter {
			continue
		}
		if from.Part == found && c.Bandwidth > best.Bandwidth || from.Part == Interface && found == Adapter {
			best, found = *c, from.Part
		}
	}
	best.Alpha *= 2
	return best
}

// rates returns what cores and memory of a machine do, as Found has put it into links.
func (t *Topology) rates() (r topo.Rates) {
	each := map[int]float64{} // by memory
	for _, l := range t.Links {
		from, to, c := &t.Nodes[l.From], &t.Nodes[l.To], &t.Classes[l.Class]
		switch {
		case c.Unmeasured():
		case from.Part == Core:
			if r.One == 0 || c.Bandwidth < r.One {
				r.One = c.Bandwidth
			}
			r.Handover = max(r.Handover, 2*c.Alpha)
		case from.Part == Cache && to.Part == Memory:
			each[l.To] = max(each[l.To], c.Bandwidth)
		}
	}
	for _, bandwidth := range each {
		r.All += bandwidth
	}
	r.All = max(r.All, r.One)
	return r
}

// Path returns what messages between hosts cost: latency and bandwidth as far as the network tells
// them, and the rest, such as what cores pay, as usual. It returns nil if the network tells
// nothing.
func (d *Described) Path(usual cost.Path) (*cost.Path, error) {
	if d.path.Bandwidth == 0 {
		return nil, nil
	}
	table := cost.Usual()
	table.Network = usual
	p := &table.Network
	p.Bandwidth, p.Burst = d.path.Bandwidth, float64(d.path.Burst)
	if d.path.Alpha > 0 {
		p.Latency = d.path.Alpha
	}
	p.TCP()
	return p, table.Validate()
}
