package network

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := "testdata/" + name
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test ./ccl/topo/network -rewrite writes it anew")
}

func cache(level int, bytes int64, processors ...int) topo.Cache {
	return topo.Cache{Level: level, Bytes: bytes, Processors: processors}
}

// bus is the path to a device behind a switch.
func bus(root, device int) []string {
	at := func(form string, n int) string { return fmt.Sprintf(form, n) }
	return []string{at("pci0000:%d", root), at("0000:%d:01.0", root), at("0000:%d:00.0", device)}
}

// machines are such as there are.
var machines = map[string]Machine{
	// Two sockets, two threads a core, one L3 for two cores; a GPU and an adapter behind a switch.
	"two_sockets": {Name: "node1", Parts: &topo.Machine{
		Processors: []int{0, 1, 2, 3, 4, 5, 6, 7},
		Nodes: []topo.Node{{ID: 0, Processors: []int{0, 1, 4, 5}, Bytes: 64 << 30},
			{ID: 1, Processors: []int{2, 3, 6, 7}, Bytes: 64 << 30}},
		Caches: []topo.Cache{
			cache(1, 48<<10, 0, 4), cache(1, 48<<10, 1, 5), cache(1, 48<<10, 2, 6), cache(1, 48<<10, 3, 7),
			cache(2, 2<<20, 0, 4), cache(2, 2<<20, 1, 5), cache(2, 2<<20, 2, 6), cache(2, 2<<20, 3, 7),
			cache(3, 32<<20, 0, 1, 4, 5), cache(3, 32<<20, 2, 3, 6, 7)},
	}, Rates: topo.Rates{One: 12e9, All: 60e9, Handover: 120e-9}, Devices: []topo.Device{
		{Kind: topo.Interface, Name: "eth0", Bus: []string{"pci0000:00", "0000:00:1f.6"}, Node: -1, Wire: 1.25e8},
		{Kind: topo.GPU, Name: "gpu0", Bus: bus(17, 18), Node: 0, Slot: 32e9},
		{Kind: topo.Adapter, Name: "mlx5_0:1", Bus: bus(17, 19), Node: 0, Slot: 32e9, Wire: 25e9},
		{Kind: topo.GPU, Name: "gpu1", Bus: bus(97, 98), Node: 1, Slot: 32e9},
		{Kind: topo.Adapter, Name: "mlx5_1:1", Bus: bus(97, 99), Node: 1, Slot: 32e9, Wire: 25e9},
	}},
	// GPUs with NVLink: two to each other and to switches, one to switches only, one of unknown
	// rate.
	"gpus": {Name: "node3", Parts: &topo.Machine{Processors: []int{0}, Limit: 8 << 30}, Devices: []topo.Device{
		{Kind: topo.GPU, Name: "gpu0", Bus: bus(1, 11), Slot: 32e9, Lanes: []topo.Lane{
			{To: "0000:12:00.0", Count: 4, Rate: 82.4e9}, {To: "0000:aa:00.0", Count: 2, Rate: 41.2e9},
			{To: "0000:ab:00.0", Count: 2, Rate: 41.2e9}}},
		{Kind: topo.GPU, Name: "gpu1", Bus: bus(1, 12), Slot: 32e9, Lanes: []topo.Lane{
			{To: "0000:11:00.0", Count: 4, Rate: 82.4e9}, {To: "0000:12:00.0", Count: 1, Rate: 1e9},
			{To: "0000:ab:00.0", Count: 4, Rate: 82.4e9}}},
		{Kind: topo.GPU, Name: "gpu2", Bus: bus(1, 13), Lanes: []topo.Lane{{To: "fffffff:ffff:ff", Count: 6}}},
		{Kind: topo.GPU, Name: "gpu3", Bus: bus(1, 14)},
	}},
	// A virtual machine of one core, of which the system tells nothing.
	"bare": {Name: "vm", Parts: &topo.Machine{Processors: []int{3}}},
	// Bound to one of two nodes; the caches of level 2 are shared.
	"bound": {Name: "node2", Parts: &topo.Machine{
		Processors: []int{2, 3},
		Nodes: []topo.Node{{ID: 0, Processors: []int{0, 1}, Bytes: 1 << 30},
			{ID: 1, Processors: []int{2, 3}, Bytes: 1 << 30}},
		Caches: []topo.Cache{
			cache(1, 64<<10, 2), cache(1, 64<<10, 3), cache(2, 1<<20, 2, 3), cache(3, 8<<20, 0, 1, 2, 3)},
	}, Rates: topo.Rates{One: 5e9}, Devices: []topo.Device{
		{Kind: topo.Interface, Name: "wlan 0!", Node: 1, Wire: 1e3},
		{Kind: topo.Interface, Name: "tap", Node: -1},
	}},
}

// TestFound makes the networks of machines; what they are is in testdata.
func TestFound(t *testing.T) {
	for name, m := range machines {
		topology, err := Found(&m)
		require.NoError(t, err, name)
		recorded(t, name, topology)
	}
}

// recorded compares a network with its golden file, which is read back, and checks that all ranks
// reach each other.
func recorded(t *testing.T, name string, topology *Topology) {
	t.Helper()
	var text strings.Builder
	require.NoError(t, topology.WriteText(&text))
	golden(t, name+".topo", text.String())
	back, err := Read(strings.NewReader(text.String()))
	require.NoError(t, err)
	require.Equal(t, topology, back)
	reachable(t, topology)
}
