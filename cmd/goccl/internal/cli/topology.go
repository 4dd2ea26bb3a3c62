package cli

import "github.com/goccl/goccl/ccl/topo/network"

// OpenTopology returns the network of a file, or the one that a text names (network.Parse), of a
// number of ranks; 0 means 8.
func OpenTopology(name string, ranks int) (*network.Topology, error) {
	if ranks == 0 {
		ranks = 8
	}
	return network.Open(name, ranks)
}
