package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/nvml"
)

// doctorOn returns the findings about a simulated machine, by name.
func doctorOn(t *testing.T, machine cudatest.Options, opts ccl.Options) map[string]topo.Finding {
	t.Helper()
	machine.Delay = -1
	d := cudatest.New(machine)
	defer d.Close()
	sysfs := t.TempDir()
	device := filepath.Join(sysfs, "bus/pci/devices/0000:02:00.0")
	require.NoError(t, os.MkdirAll(device, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(device, "numa_node"), []byte("1\n"), 0o644))
	g := gpus{driver: func() (cuda.Driver, error) { return d, nil },
		links: func() (*nvml.Library, error) { return nil, errors.New("not here") }, sysfs: sysfs}
	found := map[string]topo.Finding{}
	for _, f := range g.findings(opts) {
		require.NotContains(t, found, f.Name)
		found[f.Name] = f
	}
	d.Check(t)
	require.Empty(t, d.Leaks())
	return found
}

func TestDoctorOfGPUs(t *testing.T) {
	found := doctorOn(t, cudatest.Options{Devices: 3, Faults: cudatest.Faults{Apart: [][2]int{{0, 2}}}}, ccl.Options{})
	require.Equal(t, "CUDA 12.4, 3 devices", found["GPU driver"].Value)
	require.Equal(t, "memory of the host, 0000:01:00.0, compute capability 9.0, 1024 MiB", found["GPU 0"].Value)
	require.Contains(t, found["GPU 1"].Value, "MiB, NUMA node 1")
	require.Equal(t, "1; not 2", found["GPU 0 reaches"].Value)
	require.Equal(t, "0, 1", found["GPU 2 reaches"].Value)
	require.Contains(t, found["GPU route"].Value, "host-windows, 3 devices")
	require.Contains(t, found["GPU route"].Value, "rank 0: not supported: device 0 does not reach the memory of device 2")
}

func TestDoctorOfOneGPU(t *testing.T) {
	found := doctorOn(t, cudatest.Options{}, ccl.Options{})
	require.Contains(t, found["GPU route"].Value, "windows, 1 device, peers read memory of devices at ")
	require.Len(t, found, 4)

	poor := cudatest.Options{Faults: cudatest.Faults{NoDescriptors: true}}
	found = doctorOn(t, poor, ccl.Options{GroupOptions: ccl.GroupOptions{CudaRoute: "windows"}})
	require.Equal(t, topo.Missing, found["GPU 0"].State)
	require.Contains(t, found["GPU 0"].Hint, "cannot be shared")
	require.Equal(t, topo.Missing, found["GPU route"].State)
	require.Contains(t, found["GPU route"].Value, "cannot share its memory")

	found = doctorOn(t, cudatest.Options{}, ccl.Options{GroupOptions: ccl.GroupOptions{CudaRoute: "staged"}})
	require.Equal(t, "staged; no better route: GOCCL_CUDA_ROUTE=staged was set", found["GPU route"].Value)
}

func TestDoctorOfQueues(t *testing.T) {
	for _, test := range []struct {
		set    string
		queues int
		state  topo.State
		want   string
	}{
		{"", 8, topo.Info, "CUDA_DEVICE_MAX_CONNECTIONS is not set: a process has 8 hardware queues"},
		{"32", 32, topo.OK, "CUDA_DEVICE_MAX_CONNECTIONS=32"},
		{"1", 1, topo.Info, "CUDA_DEVICE_MAX_CONNECTIONS=1; a group that waits holds up the default stream"},
	} {
		t.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", test.set)
		found := doctorOn(t, cudatest.Options{Queues: test.queues}, ccl.Options{})["GPU queues"]
		require.Equal(t, test.state, found.State, test.set)
		require.Equal(t, test.want, found.Value)
	}
}

func TestDoctorWithoutGPU(t *testing.T) {
	found := doctorOn(t, cudatest.Options{Devices: -1}, ccl.Options{})
	require.Equal(t, "CUDA 12.4, 0 devices", found["GPU driver"].Value)
	for text, state := range map[string]topo.State{
		"libcuda.so.1 was not found: no NVIDIA driver": topo.Info, "update the driver": topo.Missing} {
		g := gpus{driver: func() (cuda.Driver, error) { return nil, fault.New(fault.NotSupported, "%s", text) }}
		found := g.findings(ccl.Options{})
		require.Len(t, found, 1)
		require.Equal(t, state, found[0].State)
	}
}
