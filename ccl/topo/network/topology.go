package network

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

// Limits on a topology. They keep a file from exhausting the process that reads it.
const (
	MaxNodes   = 1 << 18
	MaxLinks   = 1 << 21
	MaxClasses = 256
	MaxName    = 64
	MaxFile    = 256 << 20 // bytes
	MaxBytes   = 1 << 44   // that a node holds
)

// Class is a kind of link.
type Class struct {
	Name      string  `json:"name"`
	Alpha     float64 `json:"alpha"`     // seconds from one end to the other
	Bandwidth float64 `json:"bandwidth"` // bytes per second
	// Burst is how many bytes pass at once after a pause, as by a token bucket; then they count as
	// carried already.
	Burst int64 `json:"burst,omitempty"`
}

// Node is a rank or a switch.
type Node struct {
	Name     string `json:"name"`
	Rank     bool   `json:"rank,omitempty"`
	Forwards bool   `json:"forwards,omitempty"` // the rank forwards messages for other ranks. Switches always do
	Part     Part   `json:"part,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"` // what a cache or a memory holds; 0 if unknown
}

// Label returns the name of a node, and what it holds, for people.
func (n *Node) Label() string {
	if n.Bytes == 0 {
		return n.Name
	}
	return n.Name + " " + humanize.FormatSize(n.Bytes)
}

// Part says what a node is, in networks that were found; it is "" in invented ones.
type Part string

const (
	Host      Part = "host"
	Package   Part = "package" // a socket
	Memory    Part = "memory"  // of a NUMA node
	Cache     Part = "cache"
	Core      Part = "core"
	Bridge    Part = "bridge" // of the PCI bus, or a root of it
	GPU       Part = "gpu"
	Adapter   Part = "adapter" // a port of an RDMA adapter
	Interface Part = "interface"
	Outside   Part = "network" // what connects hosts
)

var parts = []Part{Host, Package, Memory, Cache, Core, Bridge, GPU, Adapter, Interface, Outside}

// Link leads from one node to another, in one direction. Its fields are indices.
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
	Limits  Limits // of a machine that was found
	Classes []Class
	Nodes   []Node
	Links   []Link
	refused string // why a generator made no nodes
}

// Ranks returns the number of nodes that are ranks.
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
	t.Classes = append(t.Classes, Class{Name: name, Alpha: alpha, Bandwidth: bandwidth})
	return len(t.Classes) - 1
}

// AddRank adds a rank and returns the index of its node.
func (t *Topology) AddRank(name string, forwards bool) int {
	t.Nodes = append(t.Nodes, Node{Name: name, Rank: true, Forwards: forwards})
	return len(t.Nodes) - 1
}

// AddSwitch adds a switch and returns the index of its node.
func (t *Topology) AddSwitch(name string) int { return t.AddNode(Node{Name: name}) }

// AddNode adds any node and returns its index.
func (t *Topology) AddNode(n Node) int {
	t.Nodes = append(t.Nodes, n)
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

// Validate checks everything except that ranks can reach each other, which Router.Route checks.
func (t *Topology) Validate() error {
	if _, wrong := t.problem(); wrong != "" {
		return invalid("%s", wrong)
	}
	return nil
}

// place is where a problem is: an element of classes, nodes or links, a whole key, or no key.
type place struct {
	list  string
	index int
}

// problem returns the first error in t, and its place.
func (t *Topology) problem() (place, string) {
	switch {
	case t.refused != "":
		return place{"", -1}, t.refused
	case !validName(t.Name):
		return place{"name", -1}, badName(t.Name)
	case !(t.Startup >= 0) || math.IsInf(t.Startup, 0):
		return place{"startup", -1}, fmt.Sprintf("startup %v s, want 0 or more", t.Startup)
	case t.Limits.wrong() != "":
		return place{"limits", -1}, t.Limits.wrong()
	case t.Routing > ECMP:
		return place{"routing", -1}, fmt.Sprintf("unknown routing %d", uint8(t.Routing))
	case len(t.Classes) > MaxClasses:
		return place{"classes", -1}, fmt.Sprintf("%d classes of links, at most %d", len(t.Classes), MaxClasses)
	case len(t.Nodes) > MaxNodes:
		return place{"nodes", -1}, fmt.Sprintf("%d nodes, at most %d", len(t.Nodes), MaxNodes)
	case len(t.Links) > MaxLinks:
		return place{"links", -1}, fmt.Sprintf("%d links, at most %d", len(t.Links), MaxLinks)
	case t.Ranks() == 0:
		return place{"nodes", -1}, "no node is a rank; add one or more"
	}
	seen := make(map[string]bool, len(t.Nodes))
	for i := range t.Classes {
		c := &t.Classes[i]
		if wrong := c.wrong(); wrong != "" {
			return place{"classes", i}, fmt.Sprintf("class %d: %s", i, wrong)
		}
		if seen[c.Name] {
			return place{"classes", i}, fmt.Sprintf("two classes are called %q", c.Name)
		}
		seen[c.Name] = true
	}
	clear(seen)
	for i := range t.Nodes {
		name, wrong := t.Nodes[i].Name, ""
		switch {
		case !validName(name):
			wrong = fmt.Sprintf("node %d: %s", i, badName(name))
		case seen[name]:
			wrong = fmt.Sprintf("two nodes are called %q", name)
		case t.Nodes[i].Forwards && !t.Nodes[i].Rank:
			wrong = fmt.Sprintf("node %q: switches always forward; only ranks say so", name)
		case t.Nodes[i].Part != "" && !slices.Contains(parts, t.Nodes[i].Part):
			wrong = fmt.Sprintf("node %q: %s", name, badPart(string(t.Nodes[i].Part)))
		case t.Nodes[i].Bytes < 0 || t.Nodes[i].Bytes > MaxBytes:
			wrong = fmt.Sprintf("node %q holds %d bytes, want 0 to 16T", name, t.Nodes[i].Bytes)
		case t.Nodes[i].Bytes > 0 && t.Nodes[i].Part == "":
			wrong = fmt.Sprintf("node %q holds bytes; say which part of a machine it is", name)
		}
		if wrong != "" {
			return place{"nodes", i}, wrong
		}
		seen[name] = true
	}
	for i, l := range t.Links {
		wrong := ""
		switch {
		case l.From < 0 || l.From >= len(t.Nodes) || l.To < 0 || l.To >= len(t.Nodes):
			wrong = fmt.Sprintf("link %d leads from node %d to %d, there are %d nodes", i, l.From, l.To, len(t.Nodes))
		case l.From == l.To:
			wrong = fmt.Sprintf("link %d leads from node %q to itself", i, t.Nodes[l.From].Name)
		case l.Class < 0 || l.Class >= len(t.Classes):
			wrong = fmt.Sprintf("link %d is of class %d, there are %d", i, l.Class, len(t.Classes))
		}
		if wrong != "" {
			return place{"links", i}, wrong
		}
	}
	return t.idle()
}

// idle finds a link that is never used because of a parallel one.
func (t *Topology) idle() (place, string) {
	if t.Routing == First {
		seen := make(map[[2]int32]bool, len(t.Links))
		for i, l := range t.Links {
			ends := [2]int32{int32(l.From), int32(l.To)}
			if seen[ends] {
				return place{"links", i}, fmt.Sprintf(
					"link %d is a second one from %q to %q, which routing first never takes; "+
						"add their bandwidths up in one link, or use routing ecmp",
					i, t.Nodes[l.From].Name, t.Nodes[l.To].Name)
			}
			seen[ends] = true
		}
	}
	return place{}, ""
}

func (c *Class) wrong() string {
	switch {
	case !validName(c.Name):
		return "its name must be letters, digits and any of _-./:"
	case !(c.Alpha >= 0) || math.IsInf(c.Alpha, 0):
		return fmt.Sprintf("alpha must be 0 or more seconds, not %v", c.Alpha)
	case c.Burst < 0 || c.Burst > MaxBytes:
		return fmt.Sprintf("the burst must be 0 to %d bytes, not %d", MaxBytes, c.Burst)
	case !(c.Bandwidth > 0) || math.IsInf(c.Bandwidth, 0):
		return fmt.Sprintf("the bandwidth must be more than 0 bytes a second, and finite, not %v", c.Bandwidth)
	}
	return ""
}

// badName describes what is wrong with a name.
func badName(s string) string {
	return fmt.Sprintf("the name %s must be 1 to %d letters, digits and any of _-./:", quote(s), MaxName)
}

// badPart describes what is wrong with the name of a Part.
func badPart(s string) string {
	return fmt.Sprintf("%s is no part of a machine; known: %s", quote(s), strings.Trim(fmt.Sprint(parts), "[]"))
}

// quote quotes a user's word, or its beginning if it is long.
func quote(s string) string {
	if len(s) > MaxName {
		s = s[:MaxName] + "…"
	}
	return strconv.Quote(s)
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
