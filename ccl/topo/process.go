package topo

import "fmt"

// Process tells which process it is, also to processes of other hosts.
type Process struct {
	Host    string `json:"host"`
	Pid     int    `json:"pid"`
	Machine string `json:"machine,omitempty"` // numbers of processes mean the same within it; "" if unknown
	Start   uint64 `json:"start,omitempty"`   // tells apart processes that had one number; 0 if unknown
}

func (p Process) String() string { return fmt.Sprintf("pid %d on %s", p.Pid, p.Host) }
