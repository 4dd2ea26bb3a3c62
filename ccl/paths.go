package ccl

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport"
)

// Path tells how this rank reaches another one.
type Path struct {
	Rank      int           `json:"rank"`
	Host      string        `json:"host"` // its name
	Pid       int           `json:"pid"`
	Transport string        `json:"transport"`            // "inproc", "shm", "rdma" or "tcp"
	From      string        `json:"from,omitempty"`       // of TCP: interface and address of this side
	To        string        `json:"to,omitempty"`         // of TCP: address of the other side
	RoundTrip time.Duration `json:"round_trip,omitempty"` // of TCP: the shortest one so far
	Why       string        `json:"why,omitempty"`        // RDMA, which the options allow, is not used now
}

// apart says which ranks of this machine cannot be reached by shared memory, and why, "" for none.
// lacking is what this rank lacks.
func apart(group *topo.Group, self int, lacking string) string {
	mine := group.Rank(self)
	why := map[string][]string{}
	for rank := range group.Size() {
		a := group.Rank(rank)
		reason := ""
		switch {
		case rank == self || a.Place.Machine != mine.Place.Machine || a.Process == mine.Process:
			continue
		case !slices.Contains(mine.Transports, "shm"):
			reason = strings.TrimPrefix(lacking, "; ")
		case !slices.Contains(a.Transports, "shm"):
			reason = "they have no shared memory"
		case a.Place.Network != mine.Place.Network:
			reason = "they are in another network namespace"
		case a.Place.User != mine.Place.User:
			reason = "they belong to another user, or to one of another user namespace"
		default:
			continue
		}
		why[reason] = append(why[reason], fmt.Sprint(rank))
	}
	var words []string
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		ranks := why[reason]
		if most := 16; len(ranks) > most {
			ranks = append(ranks[:most], "…")
		}
		words = append(words, fmt.Sprintf("ranks %s: %s", strings.Join(ranks, ", "), reason))
	}
	return strings.Join(words, "; ")
}

// Paths returns the paths to all other ranks, by rank. From, To and RoundTrip are empty until there
// is a connection (transport.Link.Open).
func (c *Communicator) Paths() []Path {
	all := make([]Path, 0, c.Size()-1)
	for rank, p := range c.paths {
		if rank == c.Rank() {
			continue
		}
		state := c.links[rank].State()
		p.From, p.To, p.RoundTrip = state.From, state.To, state.RoundTrip
		if state.Detour != nil {
			p.Transport, p.Why = "tcp", state.Detour.Error()
		}
		all = append(all, p)
	}
	return all
}

// Routes tells by which transports this rank reaches the others: "3 by shm, 4 by tcp".
func (c *Communicator) Routes() string {
	routes := make([]string, len(c.paths))
	for rank, p := range c.paths {
		routes[rank] = p.Transport
	}
	return summary(routes)
}

// Locate returns the IP addresses at which this process may reach that of a rank, nearest first.
func (c *Communicator) Locate(rank int) []netip.Addr {
	fabric := c.origin.fabrics[rank]
	if fabric == nil || fabric.SharesMemory() { // processes that share memory share loopback
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	var of address
	if json.Unmarshal(c.origin.addresses[rank], &of) != nil {
		return nil
	}
	return fabric.Locate(of.Fabrics[c.origin.fabrics[rank].Name()])
}

// Group returns what the group runs on: which ranks share a host, among others.
func (c *Communicator) Group() *topo.Group { return c.group }

// hostsText describes the hosts of a group in messages, where some have several ranks.
func hostsText(group *topo.Group) string {
	if !group.Levels() {
		return ""
	}
	return " on hosts of " + group.Sizes()
}

const mostPaths = 32 // hosts of which pathsText says something

// pathsText says how each other host is reached: by which transport, from which interface or
// adapter, and where there is a path by now, as to a neighbour of this rank.
func pathsText(group *topo.Group, links []transport.Link, routes []string) (lines []string) {
	for _, ranks := range group.Hosts() {
		if slices.ContainsFunc(ranks, func(rank int) bool { return links[rank] == nil }) { // this rank's own
			continue
		}
		at, state := ranks[0], links[ranks[0]].State()
		for _, rank := range ranks[1:] {
			if s := links[rank].State(); state.From == "" && s.From != "" {
				at, state = rank, s
			}
		}
		if len(lines) == mostPaths {
			return append(lines, fmt.Sprintf("%d hosts in all", len(group.Hosts())))
		}
		text := fmt.Sprintf("host %s (rank %d", group.Rank(at).Host, ranks[0])
		if len(ranks) > 1 {
			text += fmt.Sprintf(" and %d more", len(ranks)-1)
		}
		text += ") by " + routes[at]
		if state.From == "" {
			text += ", when one of them is needed"
		} else {
			text += fmt.Sprintf(", %s to %s", state.From, state.To)
		}
		lines = append(lines, text)
	}
	return lines
}

// summary counts routes: "3 by shm, 4 by tcp".
func summary(routes []string) string {
	counts := map[string]int{}
	for _, r := range routes {
		if r != "" {
			counts[r]++
		}
	}
	if len(counts) == 0 {
		return "alone"
	}
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf("%d by %s", n, name))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
