package topo_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
)

// numbered numbers ranks in their order.
func numbered(ranks ...topo.Rank) []topo.Rank {
	for i := range ranks {
		ranks[i].Number, ranks[i].Size = i, len(ranks)
	}
	return ranks
}

// Hosts are found by place where ranks have shared memory, by process where they have only the
// memory of their process.
func TestHosts(t *testing.T) {
	on := func(machine string, network uint64, user uint32) topo.Rank {
		return topo.Rank{Place: topo.Place{Machine: machine, Network: network, User: user},
			Transports: []string{"tcp", "shm", "inproc"}}
	}
	in := func(process string, transports ...string) topo.Rank {
		return topo.Rank{Process: process, Transports: transports}
	}
	for _, test := range []struct {
		name  string
		ranks []topo.Rank
		want  [][]int
		sizes string
	}{
		{"one host", []topo.Rank{in("n", "shm"), in("m", "shm")}, [][]int{{0, 1}}, "2"},
		{"hosts in turn", []topo.Rank{on("a", 1, 0), on("b", 1, 0), on("a", 1, 0), on("b", 1, 0)},
			[][]int{{0, 2}, {1, 3}}, "2, 2"},
		{"namespaces and users are hosts", []topo.Rank{on("a", 1, 0), on("a", 2, 0), on("a", 1, 7), on("a", 1, 0)},
			[][]int{{0, 3}, {1}, {2}}, "2, 1, 1"},
		{"without shm", []topo.Rank{in("n", "inproc", "tcp"), in("m", "inproc", "tcp"), in("n", "inproc", "tcp")},
			[][]int{{0, 2}, {1}}, "2, 1"},
		{"tcp only", []topo.Rank{in("n", "tcp"), in("n", "tcp")}, [][]int{{0}, {1}}, "1, 1"},
	} {
		g, err := topo.Agree(numbered(test.ranks...))
		require.NoError(t, err)
		require.Equal(t, test.want, g.Hosts(), test.name)
		require.Equal(t, test.sizes, g.Sizes(), test.name)
		for host, ranks := range test.want {
			for _, rank := range ranks {
				require.Equal(t, host, g.HostOf(rank), test.name)
			}
		}
	}
}

// A host is at one site; hosts without a site are at one together.
func TestSites(t *testing.T) {
	for _, test := range []struct {
		hosts, at, want []int
		grid            [3]int
		even            bool
	}{
		{[]int{0, 1, 2, 3}, nil, []int{0, 0, 0, 0}, [3]int{1, 4, 1}, true},
		{[]int{0, 1, 2, 3}, []int{7, 7, 9, 9}, []int{0, 0, 1, 1}, [3]int{1, 2, 2}, true},
		{[]int{0, 1, 2, 3}, []int{9, 7, 9, 7}, []int{0, 1, 0, 1}, [3]int{1, 2, 2}, true},
		{[]int{0, 1, 2, 3}, []int{1, 1, 2}, []int{0, 0, 1, 2}, [3]int{1, 1, 3}, false},
		{[]int{0, 0, 1, 1, 2, 2, 3, 3}, []int{1, 1, 2, 2}, []int{0, 0, 0, 0, 1, 1, 1, 1}, [3]int{2, 2, 2}, true},
		{[]int{0, 0, 1, 1, 2, 2}, []int{1, 1, 2}, []int{0, 0, 0, 0, 1, 1}, [3]int{2, 1, 2}, false},
		{[]int{0, 0, 0, 1, 2, 3}, []int{1, 1, 2, 2}, []int{0, 0, 0, 0, 1, 1}, [3]int{3, 2, 2}, false},
	} {
		g := topo.AtSites(test.hosts, test.at)
		site := make([]int, g.Size())
		for i, ranks := range g.Sites() {
			require.True(t, slices.IsSorted(ranks))
			for _, rank := range ranks {
				site[rank] = i
			}
		}
		require.Equal(t, test.want, site)
		ranks, hosts, sites, even := g.Grid()
		require.Equal(t, test.even, even, test)
		require.Equal(t, test.grid, [3]int{ranks, hosts, sites})
		require.Equal(t, sites > 1, strings.Contains(g.Form(), "sites"))
	}
	ranks := numbered(topo.Rank{Site: "a", Process: "p", Transports: []string{"inproc"}},
		topo.Rank{Site: "b", Process: "p", Transports: []string{"inproc"}})
	_, err := topo.Agree(ranks)
	require.ErrorContains(t, err, `its site is "b", that of rank 0 on the same host "a"; a host is at one site (GOCCL_SITE)`)
}

// Cores are shared by the processes of a machine, whatever their hosts are called, and by those of
// a container if it has a limit.
func TestCores(t *testing.T) {
	on := func(machine string, network uint64, usable int) topo.Rank {
		return topo.Rank{Host: "same", Cores: "0-1", Usable: usable,
			Place: topo.Place{Machine: machine, Network: network}}
	}
	for _, test := range []struct {
		name  string
		ranks []topo.Rank
		over  bool
		local int // ranks that share cores with the last rank
	}{
		{"a core each", []topo.Rank{on("a", 1, 2), on("a", 1, 2)}, false, 2},
		{"two machines", []topo.Rank{on("a", 1, 2), on("b", 1, 2), on("a", 1, 2), on("b", 1, 2)}, false, 2},
		{"two namespaces", []topo.Rank{on("a", 1, 2), on("a", 2, 2), on("a", 2, 2)}, true, 3},
		{"containers with a limit", []topo.Rank{on("a", 1, 1), on("a", 2, 1)}, false, 1},
		{"two in a container", []topo.Rank{on("a", 1, 1), on("a", 1, 1)}, true, 2},
	} {
		g, err := topo.Agree(numbered(test.ranks...))
		require.NoError(t, err)
		last := g.Size() - 1
		require.Equal(t, test.over, g.Oversubscribed(), test.name)
		require.Len(t, g.Threads(last), test.local, test.name)
		require.Equal(t, test.local-1, g.LocalRank(last), test.name)
	}
	threads := topo.OnHosts(0, 0).Threads(0)
	require.NotEqual(t, threads[0].Process, threads[1].Process, "ranks wait in threads of their own")
}

func TestQuestions(t *testing.T) {
	for _, test := range []struct {
		name                  string
		hosts                 []int
		even, inOrder, levels bool
		neighbours, rails     []int // of rank 1
	}{
		{"alone", []int{0, 1, 2}, true, true, false, nil, []int{0, 2}},
		{"one host", []int{0, 0, 0}, true, true, false, []int{0, 2}, nil},
		{"in turn", []int{0, 1, 0, 1}, true, false, true, []int{3}, []int{0}},
		{"one after the other", []int{0, 0, 1, 1}, true, true, true, []int{0}, []int{3}},
		{"uneven", []int{0, 0, 0, 1}, false, true, true, []int{0, 2}, nil},
	} {
		g := topo.OnHosts(test.hosts...)
		require.Equal(t, len(test.hosts), g.Size(), test.name)
		require.Equal(t, test.even, g.Even(), test.name)
		require.Equal(t, test.inOrder, g.InOrder(), test.name)
		require.Equal(t, test.levels, g.Levels(), test.name)
		require.Equal(t, append([]int{}, test.neighbours...), append([]int{}, g.Neighbours(1)...), test.name)
		require.Equal(t, test.rails, g.Rails(1), test.name)
	}
	require.Equal(t, [][]int{{0, 1, 2}, {3, 4, 5}}, topo.Spread(6, 2).Hosts())
	require.Equal(t, strings.Repeat("1, ", 16)+"…", topo.Spread(17, 17).Sizes())
}

// What is added makes another group, and leaves the one it is added to as it is.
func TestWith(t *testing.T) {
	g := topo.Spread(4, 1)
	before := g.Hash()
	with := g.WithSlot(1 << 20).WithDevices(topo.Devices{Rate: 1})
	require.False(t, g.Windows())
	require.True(t, with.Windows())
	require.Equal(t, 1<<20, with.Slot())
	_, on := g.Devices()
	require.False(t, on)
	d, on := with.Devices()
	require.True(t, on)
	require.Equal(t, 1.0, d.Rate)
	require.Equal(t, before, g.Hash())
	require.NotEqual(t, before, with.Hash())
	require.NotEqual(t, with.Hash(), with.WithDevices(topo.Devices{Rate: 2}).Hash())
	require.False(t, topo.Spread(4, 2).WithSlot(1).Windows(), "hosts do not read each other's")
}

func TestRoom(t *testing.T) {
	g, err := topo.Agree(numbered(topo.Rank{Slot: 3}, topo.Rank{Slot: 2}, topo.Rank{Slot: 5}))
	require.NoError(t, err)
	require.Equal(t, 2, g.Room())
}

// Every rank gets the same, in whatever order it has heard of the others.
func TestAgreeInAnyOrder(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		said := make([]topo.Rank, 1+dice.IntN(6))
		for i := range said {
			said[i] = topo.Rank{Host: "h", Pid: i, Cores: "0-3", Usable: 1 + dice.IntN(4), Slot: 64 * dice.IntN(3),
				Process: string(rune('a' + dice.IntN(3))), Place: topo.Place{Machine: string(rune('a' + dice.IntN(2)))},
				Transports: slices.Clone([]string{"tcp", "shm", "inproc"}[dice.IntN(3):])}
		}
		numbered(said...)
		switch wrong := &said[dice.IntN(len(said))]; dice.IntN(8) { // sometimes
		case 0:
			wrong.Number = dice.IntN(len(said) + 1)
		case 1:
			wrong.Size += 1 - 2*dice.IntN(2)
		case 2:
			wrong.Slot = -1
		case 3:
			said = append(said, *wrong)
			said[len(said)-1].Pid = 99
		}
		want, wrong := topo.Agree(said)
		for range 10 {
			dice.Shuffle(len(said), func(i, j int) { said[i], said[j] = said[j], said[i] })
			for _, r := range said {
				dice.Shuffle(len(r.Transports), func(i, j int) {
					r.Transports[i], r.Transports[j] = r.Transports[j], r.Transports[i]
				})
			}
			got, err := topo.Agree(said)
			require.Equal(t, wrong, err)
			if wrong == nil {
				require.Equal(t, want.Bytes(), got.Bytes())
				require.Equal(t, want, got)
			}
		}
	}
}

func TestAgreeRefuses(t *testing.T) {
	three := func(change func(ranks []topo.Rank)) []topo.Rank {
		ranks := numbered(topo.Rank{Host: "a", Pid: 1}, topo.Rank{Host: "b", Pid: 2}, topo.Rank{Host: "c", Pid: 3})
		change(ranks)
		return ranks
	}
	for _, test := range []struct {
		said []topo.Rank
		peer int
		want string
	}{
		{nil, fault.NoPeer, "no ranks"},
		{three(func(r []topo.Rank) { r[1].Size = 2 }), 1, "number of ranks: rank 0 has 3, rank 1 has 2"},
		{three(func(r []topo.Rank) { r[2].Number = 1 }), 1,
			"two processes are this rank: pid 2 of host b, and pid 3 of host c"},
		{three(func(r []topo.Rank) { r[2].Number = -1 }), fault.NoPeer, "rank -1 of a group of 3"},
		{three(func(r []topo.Rank) { r[2].Number = 3 }), fault.NoPeer, "rank 3 of a group of 3"},
		{three(func(r []topo.Rank) { r[2].Slot = -64 }), 2, "slots of -64 bytes"},
		{three(func([]topo.Rank) {})[:2], 2, "it has said nothing"},
		{three(func([]topo.Rank) {})[1:], 0, "it has said nothing"},
	} {
		_, err := topo.Agree(test.said)
		require.ErrorContains(t, err, test.want)
		f := &fault.Error{}
		require.ErrorAs(t, err, &f)
		require.Equal(t, test.peer, f.Peer, test.want)
	}
}
