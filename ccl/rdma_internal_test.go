package ccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// SetVerbs has Nodes find other adapters, until it is undone.
func SetVerbs(open func() (verbs.Library, error)) (undo func()) {
	before := openVerbs
	openVerbs = open
	return func() { openVerbs = before }
}

// A path by tcp says why it is not by RDMA, unless nobody asked for that.
func TestWithoutRDMA(t *testing.T) {
	none := fault.New(fault.NotSupported, "this machine has no adapter")
	for _, c := range []struct {
		transport string
		own       bool // has RDMA
		why       string
	}{
		{"auto", false, none.Error()}, {"auto", true, "rank 3 has no RDMA"}, {"tcp", false, ""},
	} {
		n := &Node{fabrics: map[string]transport.Fabric{}}
		if n.noRDMA = none; c.own {
			n.fabrics["rdma"], n.noRDMA = struct{ transport.Fabric }{}, nil
		}
		e := &Endpoint{node: n, cfg: Config{Options: GroupOptions{Transport: c.transport}}}
		require.Equal(t, c.why, e.withoutRDMA(3), "%+v", c)
	}
}
