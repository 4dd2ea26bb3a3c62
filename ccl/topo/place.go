package topo

import "fmt"

// Place tells where a process runs, as far as other processes have to know it.
//
// Virtual machines that were started from one snapshot have the same boot id, the same namespaces
// and the same users. Network therefore covers the hardware address of the first interface, too:
// machines that reach each other by a network differ there.
type Place struct {
	Machine string `json:"machine"` // one boot of one kernel: its processes share cores
	Network uint64 `json:"network"` // the network namespace: its processes share loopback and local sockets (a hash)
	User    uint32 `json:"user"`    // effective, as the namespace around its user namespace numbers it
	Pids    uint64 `json:"pids"`    // the PID namespace: its processes have numbers of their own (a hash, 0 if unknown)
}

// Loopback identifies the processes that share loopback with those of p.
func (p Place) Loopback() string { return fmt.Sprintf("%s/%d", p.Machine, p.Network) }

// SeesProcessesOf reports whether the numbers of the processes at q mean the same at p.
func (p Place) SeesProcessesOf(q Place) bool {
	return p.Pids != 0 && p.Pids == q.Pids && p.Loopback() == q.Loopback()
}

// Memory identifies the processes that can share memory with those of p.
func (p Place) Memory() string { return fmt.Sprintf("%s/%d", p.Loopback(), p.User) }
