package rdma

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// AnyGID has Select choose the GID of each port.
const AnyGID = -1

// How long a pair tries: the field's own units (verbs.Timing). More than six tries are never asked
// for, because seven are without end on some adapters.
const (
	DefaultTimeout = 16
	LeastTimeout   = 14
	MostTimeout    = 22
	DefaultRetries = 5
	MostRetries    = 6
)

// MostPorts is how many ports of a machine a process uses at most: the first ones of Select that
// it can open.
const MostPorts = 4

// Limits of what packets carry.
const (
	MostClass   = 255
	MostService = 15
)

// Wishes says what Select may choose.
type Wishes struct {
	Adapters Adapters
	GID      int    // index in the tables of all ports, or AnyGID
	Family   string // of RoCE's addresses, where Select chooses: "ipv4", "ipv6" or "" for any
	Seat     *Seat  // of the process, nil if nothing is known
}

// Choice is a port to use, and its GID to use.
type Choice struct {
	Device string
	Port   verbs.Port
	GID    verbs.GID
	Why    string // it was chosen: how near it is

	order
}

// String returns "mlx5_0:1".
func (c Choice) String() string { return fmt.Sprintf("%s:%d", c.Device, c.Port.Number) }

// Select returns the ports that are active, allowed and have a GID that fits. Those that a process
// uses come first (near.go). If there is none, the error says why for each port.
//
// Of a port of RoCE it prefers the GIDs that reach furthest: of RoCE v2, which is routed, with an
// IPv4 address, then with an IPv6 address, then with one that is valid on the link only; then those
// of RoCE v1. Of equal ones it takes the first. Of InfiniBand it takes the GID with index 0.
func Select(devices []verbs.Device, w Wishes) ([]Choice, error) {
	var chosen []Choice
	var reasons []string
	for _, device := range devices {
		for _, port := range device.Ports {
			gid, why := w.gidOf(device.Name, port)
			if why == "" {
				chosen = append(chosen, w.choice(&device, port, gid, len(chosen)))
			} else {
				reasons = append(reasons, fmt.Sprintf("%s:%d %s", device.Name, port.Number, why))
			}
		}
	}
	switch {
	case len(chosen) > 0:
		return rank(chosen, w.Seat), nil
	case len(reasons) == 0:
		return nil, fault.New(fault.NotSupported, "rdma: this machine has no adapter")
	}
	return nil, fault.New(fault.NotSupported, "rdma: no port can be used: %s", strings.Join(reasons, "; "))
}

// gidOf returns the GID of a port, or why the port cannot be used.
func (w Wishes) gidOf(device string, port verbs.Port) (gid verbs.GID, why string) {
	switch {
	case !w.Adapters.Allow(device, port.Number):
		return gid, fmt.Sprintf("is not allowed by %q", w.Adapters)
	case !port.Active:
		return gid, "is " + port.State
	}
	wanted := w.GID
	if wanted == AnyGID && !port.Ethernet {
		wanted = 0
	}
	if wanted != AnyGID {
		index := slices.IndexFunc(port.GIDs, func(g verbs.GID) bool { return g.Index == wanted })
		if index < 0 {
			return gid, fmt.Sprintf("has no GID with index %d", wanted)
		}
		return port.GIDs[index], ""
	}
	best := unfit
	for _, each := range port.GIDs {
		if rank := w.rank(each); rank < best {
			gid, best = each, rank
		}
	}
	if best == unfit {
		return gid, strings.TrimSpace("has no GID with an address " + w.familyText())
	}
	return gid, ""
}

func (w Wishes) familyText() string {
	if w.Family == "" {
		return ""
	}
	return "of family " + w.Family
}

const unfit = 4

// rank orders the GIDs of a port of RoCE: the least one is the best.
func (w Wishes) rank(gid verbs.GID) int {
	address := gid.Addr()
	switch {
	case w.Family == "ipv4" && !address.Is4() || w.Family == "ipv6" && address.Is4():
		return unfit
	case gid.Kind != verbs.RoCEv2:
		return 3
	case address.Is4():
		return 0
	case address.IsLinkLocalUnicast():
		return 2
	}
	return 1
}
