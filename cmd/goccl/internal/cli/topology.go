package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccl/goccl/ccl/topo/network"
)

// OpenTopology returns the network of a file, or the one that a text names (network.Parse), of a
// number of ranks where that does not say; 0 for 8.
func OpenTopology(name string, ranks int) (*network.Topology, error) {
	if ranks == 0 {
		ranks = 8
	}
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		if kind, _, _ := strings.Cut(name, ","); strings.ContainsAny(kind, "./") {
			return nil, fmt.Errorf("topology %s: there is no such file; see goccl help topo for topologies without one", name)
		}
		return network.Parse(name, ranks)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := network.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
