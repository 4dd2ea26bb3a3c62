package network

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/topo"
)

// What follows from networks and machines, for a group of 8 ranks.
func TestDescribe(t *testing.T) {
	usual := cost.Usual().Network
	for _, test := range []struct {
		name               string
		hosts              int
		latency, bandwidth float64 // 0 for no path
		rates              topo.Rates
	}{
		{"uniform:8,alpha=2us,bw=25GB", 8, 2e-6, 25e9, topo.Rates{}},
		{"uniform:8,bw=25GB", 8, usual.Latency, 25e9, topo.Rates{}},    // it does not tell how far
		{"fattree:64,alpha=1us,bw=25GB", 64, 2e-6, 25e9, topo.Rates{}}, // 8 at the first leaf
		{"fattree:64,leaf=4,alpha=1us,bw=25GB", 64, 4e-6, 25e9, topo.Rates{}},
		{"rail:4x2,alpha=1us,bw=100GB,nic_alpha=5us,nic_bw=12GB", 8, 1e-5, 12e9, topo.Rates{}},
		{"ring:64,alpha=1us,bw=25GB", 64, 7e-6, 25e9, topo.Rates{}},
		{"uniform:1", 1, 0, 0, topo.Rates{}},
		{"testdata/two_sockets.topo", 0, usual.Latency, 1.25e8, topo.Rates{One: 12e9, All: 60e9, Handover: 120e-9}},
		{"testdata/bound.topo", 0, usual.Latency, 1e3, topo.Rates{One: 5e9, All: 5e9}},
		{"testdata/bare.topo", 0, 0, 0, topo.Rates{}},
		{"testdata/nvlinks.xml", 0, usual.Latency, 12.5e9, topo.Rates{}}, // of its interface no rate is known
		{"testdata/boards.xml", 0, usual.Latency, 50e9, topo.Rates{}},
		{"testdata/hwloc2.xml", 0, 0, 0, topo.Rates{}},
	} {
		network, err := Open(test.name, 8)
		require.NoError(t, err, test.name)
		d, err := network.Describe(8)
		require.NoError(t, err, test.name)
		require.Equal(t, test.hosts, d.Hosts, test.name)
		require.Equal(t, test.rates, d.Rates, test.name)
		p, err := d.Path(usual)
		require.NoError(t, err, test.name)
		if test.bandwidth == 0 {
			require.Nil(t, p, test.name)
			continue
		}
		require.InEpsilon(t, test.latency, p.Latency, 1e-9, test.name)
		require.Equal(t, test.bandwidth, p.Bandwidth, test.name)
		require.Equal(t, usual.Send, p.Send, test.name)
	}
}

// Large networks take a moment at most, and what no cost can be is refused.
func TestDescribeBounds(t *testing.T) {
	for _, text := range []string{"fattree:65536,leaf=32", "torus:256x256", "dragonfly:32x32x32", "ring:32768"} {
		network, err := Open(text, 8)
		require.NoError(t, err)
		begun := time.Now()
		_, err = network.Describe(1 << 16)
		require.NoError(t, err)
		t.Logf("%s: %v", text, time.Since(begun))
		require.Less(t, time.Since(begun), 10*time.Second) // 1 s, where nothing else runs
	}
	for _, text := range []string{"uniform:4,alpha=61s", "uniform:4,bw=1e16B", "uniform:4,bw=0.5B"} {
		network, err := Open(text, 8)
		require.NoError(t, err)
		d, err := network.Describe(4)
		require.NoError(t, err)
		_, err = d.Path(cost.Usual().Network)
		require.ErrorContains(t, err, "costs: network.")
	}
	two := &Topology{Name: "parts"}
	two.AddRank("a", false)
	two.AddRank("b", false)
	_, err := two.Describe(2)
	require.ErrorContains(t, err, "rank 0 (a) has no path to rank 1 (b)")
}

// The limits of a container are written and read in both forms.
func TestLimits(t *testing.T) {
	m := Machine{Name: "c", Parts: &topo.Machine{Processors: []int{0, 1}, Quota: 1.5, Limit: 2 << 30, Shared: 64 << 20}}
	made, err := Found(&m)
	require.NoError(t, err)
	require.Equal(t, "time of 1.5 cores, 2G of memory, 64M in /dev/shm", made.Limits.String())
	for _, write := range []func(*Topology, *strings.Builder) error{
		func(t *Topology, b *strings.Builder) error { return t.WriteText(b) },
		func(t *Topology, b *strings.Builder) error { return t.WriteJSON(b) },
	} {
		var text strings.Builder
		require.NoError(t, write(made, &text))
		read, err := Read(strings.NewReader(text.String()))
		require.NoError(t, err, text.String())
		require.Equal(t, made, read)
	}
	other := *made
	other.Limits = Limits{}
	require.Equal(t, []string{"limits: time of 1.5 cores, 2G of memory, 64M in /dev/shm → none"},
		Compare(made, &other, 0.2))
	const head = "goccl topology format 1\nname x\nrank a\n"
	for line, says := range map[string]string{
		"limits":                         "want \"limits [cores=NUMBER]",
		"limits cores=x":                 `column 8: cores "x": want a number`,
		"limits cores=-1":                "limits: -1 cores, want 0 to 65536",
		"limits cores=nan":               "limits: NaN cores",
		"limits memory=2X":               "column 8",
		"limits memory=17T":              "up to 16T",
		"limits swap=1G":                 `want cores=NUMBER, memory=BYTES or shared=BYTES, not "swap=1G"`,
		"limits cores=1\nlimits cores=1": `a second "limits"`,
	} {
		_, err := Read(strings.NewReader(head + line))
		require.ErrorContains(t, err, says, line)
	}
	for text, says := range map[string]string{
		`"limits":{"memory":-1}`: "limits: memory -1, shared 0, want 0 to 16T", `"limits":{"cores":-1}`: "line 1, column", `"limits":{"swap":1}`: "unknown field", `"limits":[1]`: "more than 0",
	} {
		_, err := Read(strings.NewReader(`{"goccl_topology":1,"name":"x","routing":"first",` + text +
			`,"classes":[],"nodes":[{"name":"a","rank":true}],"links":[]}`))
		require.ErrorContains(t, err, says, text)
	}
}
