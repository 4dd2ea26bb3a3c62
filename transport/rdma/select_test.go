package rdma

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// gids returns a table of a port: kinds and addresses in turn, "" for an entry that is empty.
func gids(kind verbs.GIDKind, addresses ...string) []verbs.GID {
	var all []verbs.GID
	for index, each := range addresses {
		if each != "" {
			all = append(all, verbs.GID{Index: index, Value: netip.MustParseAddr(each).As16(), Kind: kind})
		}
	}
	return all
}

func port(number int, active, ethernet bool, all ...verbs.GID) verbs.Port {
	state := map[bool]string{true: "active", false: "down"}[active]
	return verbs.Port{Number: number, Active: active, State: state, Ethernet: ethernet, GIDs: all}
}

func TestSelect(t *testing.T) {
	roce := verbs.Device{Name: "mlx5_0", Ports: []verbs.Port{
		port(1, true, true, append(gids(verbs.RoCEv1, "fe80::1", "", "10.0.0.1"),
			verbs.GID{Index: 3, Kind: verbs.RoCEv2, Value: netip.MustParseAddr("fe80::1").As16()},
			verbs.GID{Index: 4, Kind: verbs.RoCEv2, Value: netip.MustParseAddr("2001:db8::1").As16()},
			verbs.GID{Index: 5, Kind: verbs.RoCEv2, Value: netip.MustParseAddr("10.0.0.1").As16()},
			verbs.GID{Index: 6, Kind: verbs.RoCEv2, Value: netip.MustParseAddr("10.0.0.2").As16()})...),
		port(2, false, true, gids(verbs.RoCEv2, "10.0.1.1")...)}}
	local := verbs.Device{Name: "mlx5_1", Ports: []verbs.Port{port(1, true, true, gids(verbs.RoCEv2, "fe80::2")...)}}
	old := verbs.Device{Name: "mlx4_0", Ports: []verbs.Port{port(1, true, true, gids(verbs.RoCEv1, "fe80::3")...)}}
	ib := verbs.Device{Name: "ib0", Ports: []verbs.Port{
		port(1, true, false, gids(verbs.InfiniBand, "fe80::4", "fec0::4")...), port(2, true, false)}}
	all := []verbs.Device{roce, local, old, ib}

	for _, each := range []struct {
		name     string
		devices  []verbs.Device
		adapters string
		gid      int
		family   string
		want     map[string]int // index of the GID by port
		why      []string
	}{
		{"the best of each", all, "", AnyGID, "",
			map[string]int{"mlx5_0:1": 5, "mlx5_1:1": 0, "mlx4_0:1": 0, "ib0:1": 0}, nil},
		{"IPv4", all, "mlx", AnyGID, "ipv4", map[string]int{"mlx5_0:1": 5}, nil},
		{"IPv6", all, "mlx", AnyGID, "ipv6", map[string]int{"mlx5_0:1": 4, "mlx5_1:1": 0, "mlx4_0:1": 0}, nil},
		{"an index", all, "", 3, "ipv4", map[string]int{"mlx5_0:1": 3}, nil},
		{"an index of InfiniBand", all, "ib", 1, "", map[string]int{"ib0:1": 1}, nil},
		{"names", all, "=mlx5_1", AnyGID, "", map[string]int{"mlx5_1:1": 0}, nil},
		{"ports", all, "=mlx5_0:1,ib0:2", AnyGID, "", map[string]int{"mlx5_0:1": 5}, nil},
		{"all but", all, "^mlx5,ib0", AnyGID, "", map[string]int{"mlx4_0:1": 0}, nil},
		{"no adapter", nil, "", AnyGID, "", nil, []string{"has no adapter"}},
		{"nothing that is active", all, "mlx5_0:2", AnyGID, "", nil,
			[]string{"mlx5_0:2 is down", `mlx5_0:1 is not allowed by "mlx5_0:2"`, `ib0:1 is not allowed`}},
		{"no such index", []verbs.Device{local}, "", 7, "", nil, []string{"mlx5_1:1 has no GID with index 7"}},
		{"no such family", []verbs.Device{local}, "", AnyGID, "ipv4", nil,
			[]string{"mlx5_1:1 has no GID with an address of family ipv4"}},
		{"InfiniBand without GIDs", []verbs.Device{ib}, "ib0:2", AnyGID, "", nil,
			[]string{"ib0:2 has no GID with index 0"}},
	} {
		t.Run(each.name, func(t *testing.T) {
			adapters, err := ParseAdapters(each.adapters)
			require.NoError(t, err)
			chosen, err := Select(each.devices, Wishes{Adapters: adapters, GID: each.gid, Family: each.family})
			if each.want == nil {
				require.ErrorIs(t, err, fault.NotSupported)
				for _, why := range each.why {
					require.ErrorContains(t, err, why)
				}
				return
			}
			require.NoError(t, err)
			got := map[string]int{}
			for _, c := range chosen {
				got[c.Device+":"+string(rune('0'+c.Port.Number))] = c.GID.Index
			}
			require.Equal(t, each.want, got)
		})
	}
}

func TestAdapters(t *testing.T) {
	for _, each := range []struct {
		text    string
		yes, no []string // of port 1
		port2   bool     // mlx5_0:2
	}{
		{"", []string{"mlx5_0", "rxe0"}, nil, true},
		{" mlx5 ", []string{"mlx5_0", "mlx5_10"}, []string{"mlx4_0", "rxe0"}, true},
		{"mlx5_1", []string{"mlx5_1", "mlx5_10"}, []string{"mlx5_0"}, false},
		{"=mlx5_1", []string{"mlx5_1"}, []string{"mlx5_0", "mlx5_10"}, false},
		{"=mlx5_0:1,mlx5_1", []string{"mlx5_0", "mlx5_1"}, []string{"mlx5_10"}, false},
		{"=mlx5_0,=mlx5_1", []string{"mlx5_0", "mlx5_1"}, []string{"mlx5_10"}, true},
		{"mlx5:2", nil, []string{"mlx5_0"}, true},
		{"^mlx5_1,rxe", []string{"mlx5_0"}, []string{"mlx5_1", "mlx5_10", "rxe0"}, true},
		{"^=mlx5_1", []string{"mlx5_0", "mlx5_10"}, []string{"mlx5_1"}, true},
		{"^mlx5_0:1", []string{"mlx5_1"}, []string{"mlx5_0"}, true},
	} {
		a, err := ParseAdapters(each.text)
		require.NoError(t, err, each.text)
		for _, name := range each.yes {
			require.True(t, a.Allow(name, 1), "%q: %s", each.text, name)
		}
		for _, name := range each.no {
			require.False(t, a.Allow(name, 1), "%q: %s", each.text, name)
		}
		require.Equal(t, each.port2, a.Allow("mlx5_0", 2), each.text)
	}
	for text, why := range map[string]string{
		"^":           "is not a name",
		"=":           "is not a name",
		"a,,b":        "is not a name",
		"a b":         "is not a name",
		"mlx5_0,=b":   "is not a name",
		"mlx5_0:":     `port ""`,
		"mlx5_0:0":    `port "0"`,
		"mlx5_0:256":  `port "256"`,
		"mlx5_0:1:2":  `port "1:2"`,
		"mlx5_0:-1":   `port "-1"`,
		"../../x":     "is not a name",
		"mlx5_0,^rxe": "is not a name",
	} {
		_, err := ParseAdapters(text)
		require.ErrorIs(t, err, fault.Invalid, text)
		require.ErrorContains(t, err, why)
	}
}

// FuzzAdapters: a list that is accepted is read as it is written.
func FuzzAdapters(f *testing.F) {
	for _, text := range []string{"", "mlx5", "=mlx5_0:1,mlx5_1", "^mlx5_3", "^=a:255,=b"} {
		f.Add(text, "mlx5_0", 1)
	}
	f.Fuzz(func(t *testing.T, text, name string, port int) {
		a, err := ParseAdapters(text)
		if err != nil {
			require.ErrorIs(t, err, fault.Invalid)
			return
		}
		again, err := ParseAdapters(a.String())
		require.NoError(t, err)
		require.Equal(t, a, again)
		require.Equal(t, a.Allow(name, port), again.Allow(name, port))
	})
}
