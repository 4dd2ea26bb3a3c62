package ccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/topo"
)

// Layouts are found from addresses: by place where ranks have shared memory, by process where they
// have only the memory of their process.
func TestHostsOf(t *testing.T) {
	place := func(machine string, network uint64, user uint32) topo.Place {
		return topo.Place{Machine: machine, Network: network, User: user}
	}
	inproc := map[string][]byte{"inproc": nil, "tcp": nil}
	shm := map[string][]byte{"inproc": nil, "shm": nil, "tcp": nil}
	for _, test := range []struct {
		name  string
		peers []address
		want  [][]int
		size  string
	}{
		{"one host", []address{{Fabrics: shm, Node: "n"}, {Fabrics: shm, Node: "m"}}, [][]int{{0, 1}}, ""},
		{"hosts in turn", []address{
			{Fabrics: shm, Place: place("a", 1, 0)}, {Fabrics: shm, Place: place("b", 1, 0)},
			{Fabrics: shm, Place: place("a", 1, 0)}, {Fabrics: shm, Place: place("b", 1, 0)},
		}, [][]int{{0, 2}, {1, 3}}, " on hosts of 2, 2"},
		{"namespaces and users are hosts", []address{
			{Fabrics: shm, Place: place("a", 1, 0)}, {Fabrics: shm, Place: place("a", 2, 0)},
			{Fabrics: shm, Place: place("a", 1, 7)}, {Fabrics: shm, Place: place("a", 1, 0)},
		}, [][]int{{0, 3}, {1}, {2}}, " on hosts of 2, 1, 1"},
		{"without shm", []address{
			{Fabrics: inproc, Node: "n"}, {Fabrics: inproc, Node: "m"}, {Fabrics: inproc, Node: "n"},
		}, [][]int{{0, 2}, {1}}, " on hosts of 2, 1"},
		{"tcp only", []address{{Node: "n"}, {Node: "n"}}, [][]int{{0}, {1}}, ""},
	} {
		hosts := hostsOf(test.peers)
		require.Equal(t, test.want, hosts, test.name)
		require.Equal(t, test.size, sizes(hosts), test.name)
	}
	require.True(t, sameSize([][]int{{0, 2}, {1, 3}}))
	require.False(t, sameSize([][]int{{0, 2}, {1}}))
}

// Cores are shared by the processes of a machine, whatever their hosts are called, and by those of
// a container if it has a limit.
func TestPlaces(t *testing.T) {
	rank := func(machine string, network uint64, usable int) address {
		place := topo.Place{Machine: machine, Network: network}
		return address{Host: "same", Cores: "0-1", Usable: usable, Place: place}
	}
	for _, test := range []struct {
		name  string
		peers []address
		over  bool
		local int // ranks that share cores with rank 0
	}{
		{"a core each", []address{rank("a", 1, 2), rank("a", 1, 2)}, false, 2},
		{"two machines", []address{rank("a", 1, 2), rank("b", 1, 2), rank("a", 1, 2), rank("b", 1, 2)}, false, 2},
		{"two namespaces", []address{rank("a", 1, 2), rank("a", 2, 2), rank("a", 2, 2)}, true, 3},
		{"containers with a limit", []address{rank("a", 1, 1), rank("a", 2, 1)}, false, 1},
		{"two in a container", []address{rank("a", 1, 1), rank("a", 1, 1)}, true, 2},
	} {
		require.Equal(t, test.over, park.Oversubscribed(places(test.peers)), test.name)
		require.Len(t, threads(test.peers, 0), test.local, test.name)
	}
}
