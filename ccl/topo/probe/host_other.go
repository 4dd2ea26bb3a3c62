//go:build !linux

package probe

import "github.com/goccl/goccl/ccl/topo"

func memory(*topo.Machine) topo.Finding {
	return topo.Finding{Name: "memory", State: topo.Info, Value: "not read on this system"}
}

func sharedMemory() topo.Finding {
	return topo.Finding{Name: "shared memory", State: topo.Missing, Value: "Linux only",
		Hint: "ranks of one host talk over TCP"}
}

func crossMemory(string) topo.Finding {
	return topo.Finding{Name: "cross-memory attach", State: topo.Missing, Value: "Linux only"}
}

func capacity(string) int64 { return 0 }

func spareThreads(string) int { return mostThreads }
