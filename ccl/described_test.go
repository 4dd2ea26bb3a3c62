package ccl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/park"
	_ "github.com/goccl/goccl/internal/scratch"
)

// costsFile writes costs into a file.
func costsFile(t *testing.T, name string, f *cost.File) {
	t.Helper()
	text, err := json.Marshal(f)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, text, 0o600))
}

func networkOf(t *testing.T, opts GroupOptions) *cost.Path {
	t.Helper()
	s, err := look(&opts, 4)
	require.NoError(t, err)
	return s.network
}

func TestCostsOfFiles(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing is kept there
	file := filepath.Join(t.TempDir(), "costs.json")
	require.Nil(t, networkOf(t, GroupOptions{}))
	require.Nil(t, networkOf(t, GroupOptions{Costs: "off"}))
	_, err := look(&GroupOptions{Costs: file}, 1)
	require.ErrorContains(t, err, "GOCCL_COSTS: costs: open "+file)
	costsFile(t, file, &cost.File{Format: cost.Format, Costs: *cost.Usual()})
	_, err = look(&GroupOptions{Costs: file}, 1)
	require.ErrorContains(t, err, "it says nothing of a network")
	costsFile(t, file, &cost.File{Format: cost.Format, Network: &cost.Part{}, Costs: *cost.Usual()})
	require.Equal(t, &cost.Usual().Network, networkOf(t, GroupOptions{Costs: file}))

	// What is kept counts where no file is named. If it is wrong, ranks join all the same.
	require.NoError(t, os.MkdirAll(filepath.Dir(cost.Kept()), 0o755))
	require.NoError(t, os.Rename(file, cost.Kept()))
	require.NotNil(t, networkOf(t, GroupOptions{}))
	require.Nil(t, networkOf(t, GroupOptions{Costs: "off"}))
	require.NoError(t, os.WriteFile(cost.Kept(), []byte("{"), 0o600))
	require.Nil(t, networkOf(t, GroupOptions{}))
}

// GOCCL_TOPO says what a network carries; costs say what cores pay. A file of costs that is named
// comes before it, one that is kept behind it.
func TestDescribedNetwork(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const text = "uniform:8,alpha=3ms,bw=1GB"
	p := networkOf(t, GroupOptions{Topo: text})
	require.Equal(t, 3e-3, p.Latency)
	require.Equal(t, 1e9, p.Bandwidth)
	require.Equal(t, cost.Usual().Network.Send, p.Send)
	require.Greater(t, p.Credit, cost.Usual().Network.Credit, "the path is long")

	kept := cost.File{Format: cost.Format, Network: &cost.Part{}, Costs: *cost.Usual()}
	kept.Costs.Network.Bandwidth, kept.Costs.Network.Send.Each, kept.Costs.Network.Burst = 7, 8e-6, 9
	costsFile(t, cost.Kept(), &kept)
	p = networkOf(t, GroupOptions{Topo: text})
	require.Equal(t, 1e9, p.Bandwidth)
	require.Zero(t, p.Burst)
	require.Equal(t, 8e-6, p.Send.Each)
	require.Equal(t, 7.0, networkOf(t, GroupOptions{Topo: "off"}).Bandwidth)

	named := filepath.Join(t.TempDir(), "costs.json")
	kept.Costs.Network.Bandwidth = 11
	costsFile(t, named, &kept)
	require.Equal(t, 11.0, networkOf(t, GroupOptions{Topo: text, Costs: named}).Bandwidth)
	require.Nil(t, networkOf(t, GroupOptions{Topo: text, Costs: "off"}))

	// A machine that tells of no wire leaves the network as it is, and has rates.
	s, err := look(&GroupOptions{Topo: "topo/network/testdata/bare.topo"}, 2)
	require.NoError(t, err)
	require.Equal(t, 7.0, s.network.Bandwidth)
	require.Nil(t, s.rates, "it does not tell any")
	s, err = look(&GroupOptions{Topo: "topo/network/testdata/two_sockets.topo"}, 2)
	require.NoError(t, err)
	cores := park.Cores()
	require.Equal(t, &topo.Rates{One: 12e9, All: min(60e9, 12e9*float64(cores)), Handover: 120e-9}, s.rates)
	require.Equal(t, cores < 4, strings.Contains(s.lacks, fmt.Sprintf("it has 4 cores, this process may use %d", cores)))
	require.Equal(t, 1.25e8, s.network.Bandwidth, "the interface, and not the adapters")
	require.Zero(t, s.hosts)
}

func TestWrongDescriptions(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	folder := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "wrong.topo")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	const head = "goccl topology format 1\nname x\n"
	for _, test := range []struct{ value, says string }{
		{filepath.Join(folder, "none.topo"), "there is no such file"},
		{folder, "it is not a file"},
		{"/dev/zero", "it is not a file"},
		{"ring", ""},
		{"hypercube:8", "unknown kind \"hypercube\""},
		{"uniform:8,bw=-1GB", "bandwidth \"-1GB\""},
		{"uniform:2,alpha=100s", "network.latency is 100"},
		{file("goccl topology format 2"), "line 1, column 1: want"},
		{file(`{"goccl_topology": 7}`), "goccl_topology is 7, this version reads 1"},
		{file(head + "class c alpha=-1us bw=1GB"), "line 3"},
		{file("<system version=\"9\"/>"), "version \"9\" of NCCL's form"},
		{file("<!DOCTYPE x [<!ENTITY a \"" + strings.Repeat("a", 99) + "\">]><topology>&a;</topology>"), "line 1"},
		{file(head + "rank a\nrank b\n"), "no path to rank 1"},
	} {
		begun := time.Now()
		_, err := look(&GroupOptions{Topo: test.value}, 2)
		require.Less(t, time.Since(begun), time.Second)
		if test.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, fault.Invalid)
		require.ErrorContains(t, err, "GOCCL_TOPO="+test.value+" is refused")
		require.ErrorContains(t, err, test.says)
		require.NotContains(t, err.Error(), "\n")
	}
}

// A group between hosts chooses by what GOCCL_TOPO says, if it is said to be slow, or far.
func TestDescriptionsChoose(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	chosen := func(texts ...string) string {
		said := make([]topo.Rank, len(texts))
		for rank, text := range texts {
			s, err := look(&GroupOptions{Topo: text}, len(texts))
			require.NoError(t, err)
			said[rank] = topo.Rank{Number: rank, Size: len(texts), Network: s.network, Described: s.hosts}
		}
		g, err := topo.Agree(said)
		require.NoError(t, err)
		p := newPlanner(&GroupOptions{Determinism: 2}, nil, g)
		return p.names[p.Choose(dtype.AllReduce, 64<<10)].Name
	}
	const fast, far = "uniform:4,alpha=5us,bw=100MB", "uniform:4,alpha=20ms,bw=10GB"
	near := chosen(fast, fast, fast, fast)
	require.NotEqual(t, near, chosen("off", "off", "off", "off"))
	require.NotEqual(t, near, chosen(far, far, far, far))
	require.NotEqual(t, near, chosen(fast, far, fast, fast), "the slowest counts")
}

// A group prints what the slowest machine does, and what has decided on its plans.
func TestDescribedGroup(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	machine := filepath.Join(t.TempDir(), "here.topo")
	require.NoError(t, os.WriteFile(machine, []byte(`goccl topology format 1
name here
class core alpha=30ns bw=12GB/s
class memory alpha=0s bw=24GB/s
class wire alpha=20ms bw=10GB/s
rank core0 core
switch L3.0 cache
switch memory0 memory
switch eth0 interface
switch network network
duplex core0 L3.0 core
duplex L3.0 memory0 memory
duplex memory0 eth0 memory
duplex eth0 network wire
`), 0o600))
	opts := GroupOptions{Topo: machine, Transport: "tcp", Debug: "INFO"}
	rates := topo.Rates{One: 12e9, All: min(24e9, 12e9*float64(park.Cores())), Handover: 60e-9}
	var text [2]bytes.Buffer
	var members []*Node
	for rank := range text {
		node, err := NewNode(NodeOptions{SocketIfname: "lo", Logger: slog.New(slog.NewTextHandler(&text[rank], nil))})
		require.NoError(t, err)
		defer node.Close()
		members = append(members, node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	endpoints, addresses := opened(t, members, opts)
	var group sync.WaitGroup
	for _, e := range endpoints {
		group.Go(func() {
			c, err := e.Join(ctx, addresses)
			if err == nil {
				err = sum(1<<14)(ctx, c)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.Contains(t, text[0].String(), "on the slowest machine "+rates.String())
	require.NotContains(t, text[1].String(), "slowest machine", "once is enough")
	for rank := range text {
		require.Contains(t, text[rank].String(), "(predicted by the costs of GOCCL_TOPO)")
	}

	// All ranks refuse what describes fewer hosts.
	opts.Topo = "uniform:1"
	endpoints, addresses = opened(t, members, opts)
	for _, e := range endpoints {
		_, err := e.Join(ctx, addresses)
		require.ErrorIs(t, err, fault.Invalid)
		require.ErrorContains(t, err, "GOCCL_TOPO: the network has 1 ranks, this group has 2 hosts")
	}
}

// opened opens a rank of a group on each node.
func opened(t *testing.T, nodes []*Node, opts GroupOptions) (endpoints []*Endpoint, addresses [][]byte) {
	t.Helper()
	for rank, node := range nodes {
		e, err := node.Open(Config{Name: "g", Rank: rank, Size: len(nodes), Options: opts})
		require.NoError(t, err)
		endpoints, addresses = append(endpoints, e), append(addresses, e.Address())
	}
	return endpoints, addresses
}
