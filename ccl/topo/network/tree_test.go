package network

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outline writes trees as names in brackets.
func outline(t *Topology, all []Branch) string {
	var words []string
	for _, b := range all {
		word := t.Nodes[b.Node].Name
		if b.Below != nil {
			word += "(" + outline(t, b.Below) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestTree(t *testing.T) {
	found := func(name string) *Topology {
		m := machines[name]
		topology, err := Found(&m)
		require.NoError(t, err)
		return topology
	}
	parsed := func(text string) *Topology {
		topology, err := Parse(text, 8)
		require.NoError(t, err)
		return topology
	}
	for _, c := range []struct {
		topology *Topology
		want     string
		beside   int
	}{
		{found("two_sockets"), "memory0(L3.0(core0 core1) pci0000:00(eth0) pci0000:17(0000:17:01.0(gpu0 mlx5_0:1))) " +
			"memory1(L3.2(core2 core3) pci0000:97(0000:97:01.0(gpu1 mlx5_1:1))) network", 4},
		{found("bare"), "memory0(core3)", 0},
		{parsed("pcie:8"), "host0(host1(plx2(r4 r5) plx3(r6 r7)) plx0(r0 r1) plx1(r2 r3))", 0},
		{parsed("ring:4"), "r0 r1 r2 r3", 4},
		{parsed("nvlink:2"), "switch(r0 r1)", 0},
	} {
		roots, beside := c.topology.Tree()
		require.Equal(t, c.want, outline(c.topology, roots))
		require.Len(t, beside, c.beside, c.topology.Name)
	}
	for _, topology := range samples() { // each node once, and each link
		roots, beside := topology.Tree()
		nodes, pairs := map[int]bool{}, map[string]bool{}
		add := func(link int) {
			l := topology.Links[link]
			pairs[fmt.Sprint(min(l.From, l.To), max(l.From, l.To))] = true
		}
		var walk func(all []Branch)
		walk = func(all []Branch) {
			for _, b := range all {
				require.False(t, nodes[b.Node])
				nodes[b.Node] = true
				if b.Link >= 0 {
					add(b.Link)
				}
				walk(b.Below)
			}
		}
		walk(roots)
		tree := len(pairs)
		for _, link := range beside {
			add(link)
		}
		require.Len(t, nodes, len(topology.Nodes), topology.Name)
		require.Len(t, pairs, tree+len(beside), topology.Name)
		all := map[string]bool{}
		for _, l := range topology.Links {
			all[fmt.Sprint(min(l.From, l.To), max(l.From, l.To))] = true
		}
		require.Equal(t, all, pairs, topology.Name)
	}
}

func TestCompare(t *testing.T) {
	m := machines["two_sockets"]
	a, err := Found(&m)
	require.NoError(t, err)
	require.Empty(t, Compare(a, a, 0))

	other := m
	other.Rates.One *= 1.1
	other.Devices = other.Devices[1:]
	b, err := Found(&other)
	require.NoError(t, err)
	require.Equal(t, []string{
		"− switch eth0 interface", "− switch pci0000:00 bridge", "− eth0 to network: 0.125 GB/s",
		"− eth0 to pci0000:00: rate unknown", "− memory0 to pci0000:00: rate unknown", "− network to eth0: 0.125 GB/s",
		"− pci0000:00 to eth0: rate unknown", "− pci0000:00 to memory0: rate unknown"}, Compare(a, b, 0.2))
	require.Contains(t, Compare(a, b, 0.05), "core0 to L3.0: 12 GB/s, 60 ns → 13.2 GB/s, 60 ns")
	require.Contains(t, Compare(b, a, 0.2), "+ switch eth0 interface")

	c := *a
	c.Nodes = append([]Node(nil), a.Nodes...)
	c.Nodes[1].Bytes = 16 << 20
	c.Startup, c.Routing = 1e-6, ECMP
	require.Equal(t, []string{"startup 0s → 1us", "routing first → ecmp",
		"switch L3.0 cache 32M → switch L3.0 cache 16M"}, Compare(a, &c, 0.2))

	for i := range c.Classes {
		if c.Classes[i].Unmeasured() {
			c.Classes[i].Bandwidth *= 9
		}
	}
	require.Len(t, Compare(a, &c, 0.2), 3, "rates that nobody knows do not differ")
}
