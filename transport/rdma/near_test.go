package rdma

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// host describes adapters with a port each: "rate@node/path".
func host(texts ...string) (all []verbs.Device) {
	for i, text := range texts {
		d := verbs.Device{Name: fmt.Sprintf("mlx5_%d", i)}
		p := port(1, true, true, gids(verbs.RoCEv2, "10.0.0.1")...)
		head, path, _ := strings.Cut(text, "/")
		fmt.Sscanf(head, "%d@%d", &p.Rate, &d.Node)
		p.Rate *= 1000
		if path != "" {
			d.Path = strings.Split(path, "/")
		}
		d.Ports = []verbs.Port{p}
		all = append(all, d)
	}
	return all
}

// TestSelectNear: which ports a process uses, by where it is.
func TestSelectNear(t *testing.T) {
	two := []string{"400@0/pci0/0/a", "400@0/pci0/0/b", "400@0/pci1/1/a", "400@0/pci1/1/b",
		"400@1/pci2/2/a", "400@1/pci2/2/b", "400@1/pci3/3/a", "400@1/pci3/3/b"}
	alike := slices.Repeat([]string{"100@-1"}, 8)
	near := func(path string, node, local int) *Seat {
		s := &Seat{Node: node, Local: local}
		if path != "" {
			s.Path = strings.Split(path, "/")
		}
		return s
	}
	for _, c := range []struct {
		name string
		host []string
		seat *Seat
		list string
		used string // numbers of adapters, in the order of paths
		slow string // those that are left out
	}{
		{"nothing is known", two, nil, "", "0123", ""},
		{"cores of node 0", two, near("", 0, 0), "", "0123", ""},
		{"cores of node 1", two, near("", 1, 0), "", "4567", ""},
		{"no node", two, near("", -1, 0), "", "0123", ""},
		{"no node, the second process", two, near("", -1, 1), "", "4567", ""},
		{"a GPU behind the switch of 6 and 7", two, near("pci3/3/g", 1, 0), "", "4567", ""},
		{"a GPU of node 0 with cores of another", two, near("pci1/1/g", 0, 3), "", "0123", ""},
		{"a switch and no node", two, near("pci3/3/g", -1, 1), "", "2367", ""},
		{"a bridge in common, not only the root", []string{"400@0/pci0/0/a", "400@0/pci0/1/a", "400@0/pci0/1/b/c"},
			near("pci0/1/b/g", 0, 0), "", "012", ""},
		{"five, and one near", []string{"400@0", "400@0", "400@0", "400@0", "400@1"}, near("", 1, 0), "", "0124", ""},
		{"slow ones", []string{"100@0", "400@1", "200@0", "400@1", "199@0"}, near("", 0, 0), "", "123", "40"},
		{"slow ones, and nothing is known", []string{"100@-1", "400@-1", "0@-1"}, nil, "", "12", "0"},
		{"near and half as fast", []string{"400@0", "400@0", "400@0", "400@0", "200@1"}, near("", 1, 0), "",
			"0124", ""},
		{"fast ones first", []string{"200@0", "200@0", "400@0", "400@0", "400@0", "400@0"}, near("", 0, 0), "",
			"2345", ""},
		{"the first process of equal ones", alike, near("", 0, 0), "", "0123", ""},
		{"the second", alike, near("", 0, 1), "", "4567", ""},
		{"the third", alike, near("", 0, 2), "", "0123", ""},
		{"two nodes, equal ones", append(slices.Repeat([]string{"100@0"}, 6), "100@1", "100@1"), near("", 1, 1), "",
			"2367", ""},
		{"a list", two, near("", 1, 1), "=mlx5_5,mlx5_0,mlx5_7", "507", ""},
		{"a list with a slow one", []string{"100@0", "400@0", "400@0"}, near("", 0, 0), "mlx5_2,mlx5_0", "20", ""},
		{"a prefix", two, near("", 1, 0), "mlx5", "4567", ""},
		{"a prefix with a slow one", []string{"100@0", "400@1"}, near("", 0, 0), "mlx5", "1", "0"},
		{"all but", two, near("", 1, 0), "^=mlx5_4", "0567", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			adapters, err := ParseAdapters(c.list)
			require.NoError(t, err)
			all, err := Select(host(c.host...), Wishes{Adapters: adapters, GID: AnyGID, Seat: c.seat})
			require.NoError(t, err)
			used, slow := "", ""
			fast := Fast(all)
			for _, each := range fast[:min(len(fast), MostPorts)] {
				used += strings.TrimPrefix(each.Device, "mlx5_")
			}
			for _, each := range all[len(fast):] {
				require.NotEmpty(t, each.Slow())
				slow += strings.TrimPrefix(each.Device, "mlx5_")
			}
			require.Equal(t, c.used, used)
			require.Equal(t, c.slow, slow)
		})
	}
}

// TestSelectSpreads: the processes of a machine with equal ports use all of them.
func TestSelectSpreads(t *testing.T) {
	for ports := 1; ports <= 12; ports++ {
		used := map[string]bool{}
		for local := range ports {
			all, err := Select(host(slices.Repeat([]string{"100@0"}, ports)...),
				Wishes{GID: AnyGID, Seat: &Seat{Node: 0, Local: local}})
			require.NoError(t, err)
			require.Len(t, all, ports)
			for _, c := range all[:min(ports, MostPorts)] {
				used[c.Device] = true
			}
		}
		require.Len(t, used, ports)
	}
}
