package ccl

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

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

// Paths returns the paths to all other ranks, by rank. From, To and RoundTrip are empty until there
// is a connection (transport.Opener).
func (c *Communicator) Paths() []Path {
	all := make([]Path, 0, c.Size()-1)
	for rank, p := range c.paths {
		if rank == c.Rank() {
			continue
		}
		if l, ok := c.links[rank].(transport.Wired); ok {
			p.From, p.To = l.Wire()
		}
		if l, ok := c.links[rank].(transport.Distant); ok {
			p.RoundTrip = l.RoundTrip()
		}
		if l, ok := c.links[rank].(transport.Detoured); ok {
			if p.Why = l.Detour(); p.Why != "" {
				p.Transport = "tcp"
			}
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
	fabric, wired := c.origin.fabrics[rank].(transport.Locator)
	if !wired { // processes that share memory share loopback
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	var of address
	if json.Unmarshal(c.origin.addresses[rank], &of) != nil {
		return nil
	}
	return fabric.Locate(of.Fabrics[c.origin.fabrics[rank].Name()])
}

// Hosts returns the ranks of each host. The ranks of a host share memory.
func (c *Communicator) Hosts() [][]int {
	hosts := slices.Clone(c.hosts)
	for i := range hosts {
		hosts[i] = slices.Clone(hosts[i])
	}
	return hosts
}
