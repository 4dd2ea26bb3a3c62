package rdma

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// Seat is where a process is on its machine.
type Seat struct {
	Path  []string // of its GPU on the PCI bus (probe.BusPath); nil if it uses none
	Node  int      // of memory that its GPU, or its cores, are near to; -1 if unknown
	Local int      // its number among the processes of the machine
}

// order is what Select orders ports by.
type order struct {
	listed int    // place in the list of adapters
	named  bool   // there, in full: never left out
	far    far    // from the process
	common int    // bridges of the PCI bus that it shares with the process
	at     int    // place among all
	slow   string // why it is left out
}

// far is how far a port is from a process.
type far int

const (
	bySwitch far = iota // behind the same switch, or root port, of the PCI bus as its GPU
	byNode              // near to the same memory
	unknown
	apart // near to other memory
)

// choice returns a port with what it is ordered by.
func (w Wishes) choice(d *verbs.Device, p verbs.Port, g verbs.GID, at int) Choice {
	c := Choice{Device: d.Name, Port: p, GID: g}
	c.at, c.far = at, unknown
	c.listed, c.named = w.Adapters.place(d.Name, p.Number)
	s := w.Seat
	if s == nil {
		return c
	}
	for c.common < min(len(s.Path), len(d.Path)) && s.Path[c.common] == d.Path[c.common] {
		c.common++
	}
	switch { // the first in common is the root complex
	case c.common >= 2:
		c.far, c.Why = bySwitch, "behind one PCIe switch with the GPU"
	case d.Node >= 0 && d.Node == s.Node:
		c.far, c.Why = byNode, fmt.Sprintf("on NUMA node %d, as the process", s.Node)
	case d.Node >= 0 && s.Node >= 0:
		c.far, c.Why = apart, fmt.Sprintf("on NUMA node %d, the process is on %d", d.Node, s.Node)
	}
	return c
}

// rank orders ports: first those that a process uses, then others that could replace them, then
// those that are too slow.
//
// What a list of adapters names comes in the order of the list. Else near ones come first, then
// fast ones; where more are equal than a process uses, each process of the machine takes others.
// Ports with less than half of the best rate are left to last, and marked, unless they are named: a
// message takes one port, and the slowest would decide.
//
// The first MostPorts are then put in the order in which the machine has them. Processes join
// their first ports, their second ones and so on, and where each adapter has a network of its own,
// it is those of one place that reach each other.
func rank(all []Choice, s *Seat) []Choice {
	best := 0
	for i := range all {
		best = max(best, all[i].Port.Rate)
	}
	for i := range all {
		if c := &all[i]; !c.named && c.Port.Rate > 0 && 2*c.Port.Rate < best {
			c.slow = fmt.Sprintf("%g Gbit/s, and others have %g", float64(c.Port.Rate)/1000, float64(best)/1000)
		}
	}
	slices.SortStableFunc(all, func(a, b Choice) int { return cmp.Or(a.class(&b), a.at-b.at) })
	if s != nil {
		for from, to := 0, 0; from < len(all); from = to {
			for to = from + 1; to < len(all) && all[from].class(&all[to]) == 0; to++ {
			}
			if from < MostPorts && to > MostPorts { // some of these are used
				rotate(all[from:to], s.Local*(MostPorts-from))
			}
		}
	}
	used := 0
	for used < min(len(all), MostPorts) && all[used].slow == "" {
		used++
	}
	slices.SortStableFunc(all[:used], func(a, b Choice) int { return cmp.Or(a.listed-b.listed, a.at-b.at) })
	return all
}

// class compares what matters of ports.
func (c *Choice) class(o *Choice) int {
	slow := 0
	switch {
	case c.slow != "" && o.slow == "":
		slow = 1
	case c.slow == "" && o.slow != "":
		slow = -1
	}
	return cmp.Or(slow, c.listed-o.listed, int(c.far-o.far), o.common-c.common, o.Port.Rate-c.Port.Rate)
}

func rotate(all []Choice, by int) {
	by %= len(all)
	copy(all, append(slices.Clone(all[by:]), all[:by]...))
}

// Slow says why a port is not used beside faster ones, "" if it may be.
func (c *Choice) Slow() string { return c.slow }

// Fast returns the ports of Select that are not too slow beside the others: the first MostPorts of
// them that can be opened are used.
func Fast(all []Choice) []Choice {
	n := 0
	for n < len(all) && all[n].slow == "" {
		n++
	}
	return all[:n]
}
