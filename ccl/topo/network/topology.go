package network

import (
	"math"

	"github.com/goccl/goccl/ccl/fault"
)

// Limits on a topology. They keep a file from exhausting the process that reads it.
const (
	MaxNodes   = 1 << 18
	MaxLinks   = 1 << 21
	MaxClasses = 256
	MaxName    = 64
	MaxFile    = 256 << 20 // bytes
)

// Class is a kind of link.
type Class struct {
	Name      string  `json:"name"`
	Alpha     float64 `json:"alpha"`     // seconds from one end to the other
	Bandwidth float64 `json:"bandwidth"` // bytes a second
}

// Node is a rank or a switch.
type Node struct {
	Name     string `json:"name"`
	Rank     bool   `json:"rank,omitempty"`
	Forwards bool   `json:"forwards,omitempty"` // of a rank: it passes on what is for others. Switches always do
}

// Link leads from a node to another, in one direction. The numbers are indices.
type Link struct {
	From  int `json:"from"`
	To    int `json:"to"`
	Class int `json:"class"`
}

// Routing chooses among shortest paths.
type Routing uint8

const (
	First Routing = iota // the link that was added first
	ECMP                 // by a hash of the two ranks
)

func (r Routing) String() string {
	if r == ECMP {
		return "ecmp"
	}
	return "first"
}

// Topology is a network. Ranks are numbered in the order of their nodes.
type Topology struct {
	Name    string
	Startup float64 // seconds that a message costs its sender before anything else
	Routing Routing
	Classes []Class
	Nodes   []Node
	Links   []Link
}

// Ranks is how many nodes are ranks.
func (t *Topology) Ranks() int {
	n := 0
	for i := range t.Nodes {
		if t.Nodes[i].Rank {
			n++
		}
	}
	return n
}

// AddClass adds a class of links and returns its index.
func (t *Topology) AddClass(name string, alpha, bandwidth float64) int {
	t.Classes = append(t.Classes, Class{name, alpha, bandwidth})
	return len(t.Classes) - 1
}

// AddRank adds a rank and returns the index of its node.
func (t *Topology) AddRank(name string, forwards bool) int {
	t.Nodes = append(t.Nodes, Node{Name: name, Rank: true, Forwards: forwards})
	return len(t.Nodes) - 1
}

// AddSwitch adds a switch and returns the index of its node.
func (t *Topology) AddSwitch(name string) int {
	t.Nodes = append(t.Nodes, Node{Name: name})
	return len(t.Nodes) - 1
}

// AddLink adds a link and returns its index.
func (t *Topology) AddLink(from, to, class int) int {
	t.Links = append(t.Links, Link{from, to, class})
	return len(t.Links) - 1
}

// AddDuplex adds a link in each direction.
func (t *Topology) AddDuplex(a, b, class int) {
	t.AddLink(a, b, class)
	t.AddLink(b, a, class)
}

// Validate checks everything but that ranks can reach each other, which Router.Route reports.
func (t *Topology) Validate() error {
	switch {
	case !validName(t.Name):
		return invalid("the name %q must be 1 to %d letters, digits and any of _-./:", t.Name, MaxName)
	case !(t.Startup >= 0) || math.IsInf(t.Startup, 0):
		return invalid("startup %v s, want 0 or more", t.Startup)
	case t.Routing > ECMP:
		return invalid("unknown routing %d", uint8(t.Routing))
	case len(t.Classes) > MaxClasses:
		return invalid("%d classes of links, at most %d", len(t.Classes), MaxClasses)
	case len(t.Nodes) > MaxNodes:
		return invalid("%d nodes, at most %d", len(t.Nodes), MaxNodes)
	case len(t.Links) > MaxLinks:
		return invalid("%d links, at most %d", len(t.Links), MaxLinks)
	case t.Ranks() == 0:
		return invalid("no node is a rank")
	}
	seen := make(map[string]bool, len(t.Nodes))
	for i := range t.Classes {
		c := &t.Classes[i]
		if wrong := c.wrong(); wrong != "" {
			return invalid("class %d: %s", i, wrong)
		}
		if seen[c.Name] {
			return invalid("two classes are called %q", c.Name)
		}
		seen[c.Name] = true
	}
	clear(seen)
	for i := range t.Nodes {
		name := t.Nodes[i].Name
		switch {
		case !validName(name):
			return invalid("node %d: the name %q must be 1 to %d letters, digits and any of _-./:", i, name, MaxName)
		case seen[name]:
			return invalid("two nodes are called %q", name)
		case t.Nodes[i].Forwards && !t.Nodes[i].Rank:
			return invalid("node %q: switches always forward; only ranks say so", name)
		}
		seen[name] = true
	}
	for i, l := range t.Links {
		switch {
		case l.From < 0 || l.From >= len(t.Nodes) || l.To < 0 || l.To >= len(t.Nodes):
			return invalid("link %d leads from node %d to %d, there are %d nodes", i, l.From, l.To, len(t.Nodes))
		case l.From == l.To:
			return invalid("link %d leads from node %q to itself", i, t.Nodes[l.From].Name)
		case l.Class < 0 || l.Class >= len(t.Classes):
			return invalid("link %d is of class %d, there are %d", i, l.Class, len(t.Classes))
		}
	}
	return nil
}

func (c *Class) wrong() string {
	switch {
	case !validName(c.Name):
		return "its name must be letters, digits and any of _-./:"
	case !(c.Alpha >= 0) || math.IsInf(c.Alpha, 0):
		return "alpha must be 0 or more"
	case !(c.Bandwidth > 0) || math.IsInf(c.Bandwidth, 0):
		return "the bandwidth must be more than 0"
	}
	return ""
}

func validName(s string) bool {
	for _, c := range []byte(s) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '-' || c == '.' || c == '/' || c == ':'
		if !ok {
			return false
		}
	}
	return s != "" && len(s) <= MaxName
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "topology: "+format, args...)
}
