package network

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// xmlFiles are such as tools write, each with its network beside it.
var xmlFiles = []string{"nvswitch", "nvlinks", "boards", "cloud", "hwloc1", "hwloc2", "hwloc3"}

func TestXML(t *testing.T) {
	for _, name := range xmlFiles {
		file, err := os.ReadFile("testdata/" + name + ".xml")
		require.NoError(t, err)
		topology, err := Read(strings.NewReader(string(file)))
		require.NoError(t, err, name)
		recorded(t, name, topology)
	}
}

// reachable checks that all ranks reach each other.
func reachable(t *testing.T, topology *Topology) {
	router, err := NewRouter(topology)
	require.NoError(t, err)
	for from := range router.Ranks() {
		for to := range router.Ranks() {
			_, err := router.Route(nil, from, to)
			require.NoError(t, err, "%s: %d to %d", topology.Name, from, to)
		}
	}
}

// TestNCCLRates checks what is taken over from NCCL.
func TestNCCLRates(t *testing.T) {
	for sm, rate := range map[string]string{
		"52": "x2-of-unknown-rate", "61": "288G", "70": "320G", "75": "320G", "80": "320G", "86": "192G", "89": "320G",
		"90": "329.6G", "100": "641.6G", "120": "641.6G",
	} {
		topology := read(t, strings.ReplaceAll(gpus(`<nvlink target="0000:02:00.0" count="2"/>`), `"80"`, `"`+sm+`"`))
		require.Equal(t, "nvlink-"+rate, topology.Classes[0].Name, sm)
	}
	for cpu, class := range map[string]string{
		``:               "between-nodes-of-unknown-rate",
		`arch="riscv64"`: "between-nodes-of-unknown-rate",
		`arch="ppc64"`:   "smp-256G",
		`arch="arm64"`:   "smp-48G",
		`arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"`: "smp-320G",
		`arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"`: "smp-176G",
		`arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"`:  "smp-80G",
		`arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"`:  "smp-48G",
		`arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1"`:  "smp-128G",
		`arch="x86_64" vendor="  Shanghai  " familyid="7" modelid="91"`:  "smp-72G",
		`arch="x86_64" vendor="CentaurHauls" familyid="7" modelid="27"`:  "smp-48G",
		`arch="x86_64" vendor="somebody"`:                                "between-nodes-of-unknown-rate",
	} {
		topology := read(t, `<system version="1"><cpu numaid="0" `+cpu+`/><cpu numaid="-1" `+cpu+`/></system>`)
		require.Equal(t, class, topology.Classes[1].Name, cpu)
		require.Equal(t, 2, topology.Ranks()) // without GPUs
		reachable(t, topology)
	}
	for slot, class := range map[string]string{
		slot("2.5 GT/s PCIe", "1"): "bus-2G", slot("5 GT/s", "16"): "bus-64G", slot("8.0 GT/s PCIe", "16"): "bus-126G",
		slot("64.0 GT/s PCIe", "16"): "bus-1008G", slot("", ""): "bus-of-unknown-rate",
		slot("Unknown", "8"): "bus-of-unknown-rate", slot("16 GT/s", "255"): "bus-of-unknown-rate",
	} {
		require.Equal(t, class, read(t, slot).Classes[0].Name, slot)
	}
}

// TestOddHWLOC reads files that leave out what others have.
func TestOddHWLOC(t *testing.T) {
	topology := read(t, "<topology>"+pu+"</topology>")
	require.Equal(t, []Node{{Name: "core0", Rank: true, Part: Core}, {Name: "machine", Part: Host},
		{Name: "memory0", Part: Memory}}, topology.Nodes)
	topology = read(t, machine(`<object type="Package">`+pu+`</object>`+
		`<object type="Package"><object type="PU" os_index="1"/></object>`+
		`<object type="NUMANode" os_index="3" local_memory="99999999999999999">`+
		`<object type="OSDev" osdev_type="2" name="a"/></object>`))
	require.Equal(t, []string{"core0", "core1", "machine", "memory3", "a", "network", "package0", "package1"},
		names(topology))
	require.EqualValues(t, MaxBytes, topology.Nodes[3].Bytes)
	reachable(t, topology)
}

func names(topology *Topology) (names []string) {
	for _, n := range topology.Nodes {
		names = append(names, n.Name)
	}
	return names
}

func read(t *testing.T, text string) *Topology {
	t.Helper()
	topology, err := Read(strings.NewReader(text))
	require.NoError(t, err)
	return topology
}
