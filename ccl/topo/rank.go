package topo

import (
	"slices"
	"strconv"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/internal/park"
)

// Rank is what one rank says of itself before its group meets, as far as choices depend on it, or
// messages name it.
type Rank struct {
	Number  int    `json:"rank"` // in the group
	Size    int    `json:"size"` // of the group
	Host    string `json:"host"` // its name, for messages
	Place   Place  `json:"place"`
	Process string `json:"node"`             // tells processes apart: random
	Pid     int    `json:"pid"`              // for messages
	Cores   string `json:"cores"`            // where it may run, as park.CPUSet prints it
	Usable  int    `json:"usable"`           // how many of them at the same time
	Slot    int    `json:"slot"`             // bytes of a slot of a window, as much as it can give
	BF16    bool   `json:"bf16,omitempty"`   // GOCCL_FAST_BF16 is set and its processor supports it
	Claims  bool   `json:"claims,omitempty"` // lines of shared memory are claimed (kernel.Claims)
	Site    string `json:"site,omitempty"`   // the name of the place where its host is; "" for none
	// Network is what messages to other hosts cost, if that was measured.
	Network *cost.Path `json:"network,omitempty"`
	Far     *cost.Path `json:"far,omitempty"` // likewise, to hosts of other sites
	// Described is how many hosts or ranks a network has that it was told of (GOCCL_TOPO); 0 if it
	// was told of none.
	Described int `json:"described,omitempty"`
	// Rates are what its cores do, if that was measured.
	Rates *Rates `json:"rates,omitempty"`
	// Transports are the names of those that it has.
	Transports []string `json:"transports,omitempty"`
}

// memory names the ranks with which a rank can share memory.
func (r *Rank) memory() string {
	switch {
	case slices.Contains(r.Transports, "shm"):
		return r.Place.Memory()
	case slices.Contains(r.Transports, "inproc"):
		return "process " + r.Process
	}
	return "rank " + strconv.Itoa(r.Number)
}

// cores names the ranks that may share cores with a rank. Processes whose processor time is limited
// share it with those of their container only, which has a network of its own.
func (r *Rank) cores() string {
	set, err := park.ParseCPUs(r.Cores)
	if err == nil && r.Usable > 0 && r.Usable < set.Count() {
		return r.Place.Loopback()
	}
	return r.Place.Machine
}
