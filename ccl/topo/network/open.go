package network

import (
	"errors"
	"os"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// Open returns the network of a file (Read), or the one that a text names (Parse), of a number of
// ranks if the text does not say how many.
func Open(name string, ranks int) (*Topology, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		if kind, _, _ := strings.Cut(name, ","); strings.ContainsAny(kind, "./") {
			return nil, fault.New(fault.Invalid,
				"topology %s: there is no such file; see goccl help topo for topologies without one", name)
		}
		return Parse(name, ranks)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "topology")
	}
	defer f.Close()
	t, err := Read(f)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s", name)
	}
	return t, nil
}
