package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

// TestDevices makes the /sys of a machine with two GPUs, an adapter of two ports, and interfaces of
// all kinds.
func TestDevices(t *testing.T) {
	root := t.TempDir()
	make := func(folder string, files ...string) {
		folder = filepath.Join(root, "sys", folder)
		require.NoError(t, os.MkdirAll(folder, 0o700))
		for _, file := range files {
			name, content, _ := strings.Cut(file, "=")
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content+"\n"), 0o600))
		}
	}
	link := func(at, to string) {
		at = filepath.Join(root, "sys", at)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.Symlink(filepath.Join(root, "sys", to), at))
	}
	gpu := []string{"vendor=0x10de", "class=0x030200", "numa_node=1", "max_link_speed=16.0 GT/s PCIe",
		"max_link_width=16"}
	make("devices/pci0000:97/0000:97:01.0/0000:98:00.0", gpu...)
	make("devices/pci0000:17/0000:17:01.0/0000:18:00.0", gpu...)
	make("devices/pci0000:17/0000:17:02.0", "vendor=0x1af4", "class=0x020000", "numa_node=-1",
		"max_link_speed=Unknown", "max_link_width=255")
	make("devices/pci0000:97/0000:97:01.0/0000:99:00.0", "vendor=0x15b3", "class=0x020700", "numa_node=1",
		"max_link_speed=5.0 GT/s PCIe", "max_link_width=8")
	for _, device := range []string{"0000:97:01.0/0000:98:00.0", "0000:97:01.0/0000:99:00.0"} {
		link("bus/pci/devices/"+filepath.Base(device), "devices/pci0000:97/"+device)
	}
	link("bus/pci/devices/0000:18:00.0", "devices/pci0000:17/0000:17:01.0/0000:18:00.0")
	link("bus/pci/devices/0000:17:02.0", "devices/pci0000:17/0000:17:02.0")
	make("class/infiniband/mlx5_0/ports/1", "state=4: ACTIVE", "rate=200 Gb/sec (4X HDR)")
	make("class/infiniband/mlx5_0/ports/2", "state=1: DOWN", "rate=10 Gb/sec (4X SDR)")
	link("class/infiniband/mlx5_0/device", "devices/pci0000:97/0000:97:01.0/0000:99:00.0")
	for name, files := range map[string][]string{
		"lo":      {"type=772", "operstate=unknown"},
		"eth0":    {"type=1", "operstate=up", "speed=-1"},
		"ib0":     {"type=32", "operstate=up", "speed=200000"},
		"eth1":    {"type=1", "operstate=down", "speed=1000"},
		"slave0":  {"type=1", "operstate=up", "speed=1000", "master="},
		"docker0": {"type=1", "operstate=up", "speed=10000", "bridge="},
		"wg0":     {"type=65534", "operstate=unknown"},
	} {
		make("class/net/"+name, files...)
	}
	make("devices/pci0000:17/0000:17:02.0/virtio1")
	link("class/net/eth0/device", "devices/pci0000:17/0000:17:02.0/virtio1")
	link("class/net/ib0/device", "devices/pci0000:97/0000:97:01.0/0000:99:00.0")

	x16 := topo.PCIRate(16e9, 16)
	require.InDelta(t, 31.5e9, x16, 1e8)
	require.Equal(t, []topo.Device{
		{Kind: topo.GPU, Name: "gpu0", Bus: []string{"pci0000:17", "0000:17:01.0", "0000:18:00.0"}, Node: 1, Slot: x16},
		{Kind: topo.GPU, Name: "gpu1", Bus: []string{"pci0000:97", "0000:97:01.0", "0000:98:00.0"}, Node: 1, Slot: x16},
		{Kind: topo.Adapter, Name: "mlx5_0:1", Bus: []string{"pci0000:97", "0000:97:01.0", "0000:99:00.0"}, Node: 1,
			Slot: 4e9, Wire: 25e9},
		{Kind: topo.Interface, Name: "ib0", Bus: []string{"pci0000:97", "0000:97:01.0", "0000:99:00.0"}, Node: 1,
			Slot: 4e9, Wire: 25e9},
		{Kind: topo.Interface, Name: "eth0", Bus: []string{"pci0000:17", "0000:17:02.0"}, Node: -1},
	}, Devices(root))
	require.Empty(t, Devices(t.TempDir()))
}
