package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestDoctorOfAdaptersAndGPUs: each GPU with the ports that are allowed, together where they are
// alike.
func TestDoctorOfAdaptersAndGPUs(t *testing.T) {
	d := cudatest.New(cudatest.Options{Devices: 2, Delay: -1})
	defer d.Close()
	n := verbstest.New(verbstest.Options{Adapters: 2, Ports: 2, DMABuf: d.MemoryOfDMABuf})
	defer n.Close()
	n.SetPort(0, 0, 2, false)
	found := func(opts ccl.Options) (lines []string) {
		for _, f := range adaptersOfGPUs(func() (cuda.Driver, error) { return d, nil },
			func() (verbs.Library, error) { return n.Host(0), nil }, opts) {
			require.Equal(t, topo.Info, f.State)
			lines = append(lines, f.Name+": "+f.Value)
		}
		d.Check(t)
		n.Check(t)
		require.Empty(t, d.Leaks())
		require.Empty(t, n.Leaks())
		return lines
	}
	const used, staged = "dmabuf, which nothing uses yet: messages of GPUs are staged", "staged through memory of the host: dmabuf: "
	require.Equal(t, []string{"GPU 0 with fake_0:1, fake_1:1, fake_1:2: " + used,
		"GPU 1 with fake_0:1, fake_1:1, fake_1:2: " + used}, found(ccl.Options{}))
	require.Equal(t, []string{"GPU 0 with fake_1:2: " + used, "GPU 1 with fake_1:2: " + used},
		found(ccl.Options{NodeOptions: ccl.NodeOptions{IBHCA: "=fake_1:2"}}))
	require.Empty(t, found(ccl.Options{NodeOptions: ccl.NodeOptions{IBHCA: "=fake_9"}}))

	n.Refuse(0, "RegisterDMABuf", 2, nil) // that of the second adapter for the first GPU
	lines := found(ccl.Options{})
	require.Len(t, lines, 3)
	require.Equal(t, "GPU 0 with fake_0:1: "+used, lines[0])
	require.Equal(t, "GPU 0 with fake_1:1, fake_1:2: "+staged+"system error: RegisterDMABuf: refused by the test; nvidia_peermem: "+
		"not supported: RegisterAddress: the kernel has no module for memory of devices", lines[1])

	d.SetFaults(cudatest.Faults{NoDMABuf: true})
	require.Contains(t, found(ccl.Options{})[1], "GPU 1 with fake_0:1, fake_1:1, fake_1:2: "+staged+
		"not supported: the GPU driver refused: cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801)")
	n.Refuse(0, "Open", 0, nil)
	require.Contains(t, found(ccl.Options{})[0], "system error: Open: refused by the test")
}

// TestDoctorWithoutAdaptersOrGPUs has nothing to say of the one with the other.
func TestDoctorWithoutAdaptersOrGPUs(t *testing.T) {
	n := verbstest.New(verbstest.Options{})
	defer n.Close()
	none := cudatest.New(cudatest.Options{Devices: -1, Delay: -1})
	defer none.Close()
	one := cudatest.New(cudatest.Options{Delay: -1})
	defer one.Close()
	library := func() (verbs.Library, error) { return n.Host(0), nil }
	missing := fault.New(fault.NotSupported, "not here")
	require.Empty(t, adaptersOfGPUs(func() (cuda.Driver, error) { return nil, missing }, library, ccl.Options{}))
	require.Empty(t, adaptersOfGPUs(func() (cuda.Driver, error) { return none, nil }, library, ccl.Options{}))
	require.Empty(t, adaptersOfGPUs(func() (cuda.Driver, error) { return one, nil },
		func() (verbs.Library, error) { return nil, missing }, ccl.Options{}))
}
