package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// adaptersOn returns the findings about the adapters of a network's host, by name.
func adaptersOn(t *testing.T, o verbstest.Options, opts ccl.Options) map[string]topo.Finding {
	t.Helper()
	n := verbstest.New(o)
	defer n.Close()
	n.SetPort(0, 0, 2, false)
	found := map[string]topo.Finding{}
	for _, f := range adaptersFound(func() (verbs.Library, error) { return n.Host(0), nil }, opts) {
		require.NotContains(t, found, f.Name)
		found[f.Name] = f
	}
	n.Check(t)
	require.Empty(t, n.Leaks())
	return found
}

func TestDoctorOfAdapters(t *testing.T) {
	two := verbstest.Options{Ports: 2, Adapters: 2}
	found := adaptersOn(t, two, ccl.Options{})
	require.Equal(t, topo.OK, found["RDMA fake_0:1"].State)
	require.Contains(t, found["RDMA fake_0:1"].Value, "active, RoCE, MTU 4096")
	require.Contains(t, found["RDMA fake_0:1"].Value, "RoCE v2")
	require.Contains(t, found["RDMA fake_0:1"].Value, ", used")
	require.Contains(t, found["RDMA fake_0:2"].Value, "down")
	require.NotContains(t, found["RDMA fake_0:2"].Value, ", used")
	require.Equal(t, topo.OK, found["RDMA fake_1:2"].State)
	require.Contains(t, found["RDMA fake_1:2"].Value, ", used")
	require.Equal(t, "16 MiB can be pinned", found["RDMA memory"].Value)

	found = adaptersOn(t, verbstest.Options{Ports: 2, Adapters: 3}, ccl.Options{})
	require.Equal(t, topo.OK, found["RDMA fake_2:1"].State)
	require.Equal(t, topo.Info, found["RDMA fake_2:2"].State)
	require.NotContains(t, found["RDMA fake_2:2"].Value, ", used")

	found = adaptersOn(t, two, ccl.Options{NodeOptions: ccl.NodeOptions{IBHCA: "=fake_1:2"}})
	require.Contains(t, found["RDMA fake_1:2"].Value, ", used")

	found = adaptersOn(t, two, ccl.Options{NodeOptions: ccl.NodeOptions{IBHCA: "=fake_0:2"}})
	require.Equal(t, topo.Missing, found["RDMA"].State)
	require.Contains(t, found["RDMA"].Value, "fake_0:2 is down")

	found = adaptersOn(t, verbstest.Options{Ports: 2, Locked: 64 << 10}, ccl.Options{})
	require.Equal(t, topo.Missing, found["RDMA memory"].State)
	require.Equal(t, "TCP is used", found["RDMA memory"].Hint)

	for _, f := range adaptersFound(func() (verbs.Library, error) {
		return nil, fault.New(fault.NotSupported, "rdma: there is no library")
	}, ccl.Options{}) {
		require.Equal(t, topo.Finding{Name: "RDMA", State: topo.Info, Value: "no adapter: ranks of other hosts are reached by " +
			"TCP; not supported: rdma: there is no library"}, f)
	}
}
