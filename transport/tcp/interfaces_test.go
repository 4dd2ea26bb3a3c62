package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/stretchr/testify/require"
)

func host(names ...string) (nics []nic) {
	for i, name := range names {
		n := nic{name: name, loopback: name == "lo"}
		if name != "bare0" {
			n.prefixes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24)}
		}
		nics = append(nics, n)
	}
	return nics
}

func TestSelector(t *testing.T) {
	all := host("lo", "eth0", "eth1", "eth10", "docker0", "ib0", "bare0")
	for _, tt := range []struct {
		text  string
		nics  []nic
		names []string // in order; nil: the list is an error
	}{
		{"", all, []string{"eth0", "eth1", "eth10", "ib0", "docker0", "lo"}},
		{"  ", all, []string{"eth0", "eth1", "eth10", "ib0", "docker0", "lo"}},
		{"", host("br-ex", "lo", "eth0"), []string{"eth0", "br-ex", "lo"}},
		{"", host("lo", "docker0"), []string{"docker0", "lo"}},
		{"", host("lo", "bare0"), []string{"lo"}},
		{"eth0,eth1", all, []string{"eth0", "eth1", "eth10"}},
		{"=eth1", all, []string{"eth1"}},
		{"=eth1, ib", all, []string{"eth1", "ib0"}},
		{"eth", all, []string{"eth0", "eth1", "eth10"}},
		{"docker0", all, []string{"docker0"}},
		{"lo", all, []string{"lo"}},
		{"^docker,lo", all, []string{"eth0", "eth1", "eth10", "ib0"}},
		{"^eth", all, []string{"docker0", "ib0", "lo"}},
		{"^=eth1", all, []string{"eth0", "eth10", "docker0", "ib0", "lo"}},
		{"wlan", all, nil},
		{"bare0", all, nil},
		{"^", all, nil},
		{",", all, nil},
		{"^,", all, nil},
		{"eth1,", all, []string{"eth1", "eth10"}},
		{"=eth1:1", all, []string{"eth1"}},
		{"NCCL_SOCKET_IFNAME=eth1", all, []string{"eth1", "eth10"}},
		{"NCCL_SOCKET_IFNAME=eth1, ,ib:0,", all, []string{"eth1", "eth10", "ib0"}},
		{"NCCL_SOCKET_IFNAME==eth1,ib0", all, []string{"eth1", "ib0"}},
		{"NCCL_SOCKET_IFNAME=^docker,lo", all, []string{"eth0", "eth1", "eth10", "ib0"}},
		{"NCCL_SOCKET_IFNAME=^=eth1,lo", all, []string{"eth0", "eth10", "docker0", "ib0"}},
		{"NCCL_SOCKET_IFNAME=^=lo,=docker0", all, []string{"eth0", "eth1", "eth10", "ib0"}},
		{"GLOO_SOCKET_IFNAME=eth1,lo,", all, []string{"eth1", "lo"}},
		{"NCCL_SOCKET_IFNAME=,", all, nil},
		{"NCCL_SOCKET_IFNAME=eth1,^lo", all, nil},
		{"OTHER_SOCKET_IFNAME=eth1", all, nil},
		{"eth0,^lo", all, nil},
		{"==eth0", all, nil},
		{"=", all, nil},
		{"eth 0", all, nil},
		{"10.0.0.0/24", all, nil},
	} {
		t.Run(tt.text, func(t *testing.T) {
			sel, err := parseSelector(tt.text)
			var chosen []nic
			if err == nil {
				chosen, err = sel.choose(tt.nics)
			}
			if tt.names == nil {
				require.Error(t, err)
				require.Equal(t, strings.HasPrefix(tt.text, "NCCL"), errors.Is(err, fault.NotSupported))
				require.Equal(t, !strings.HasPrefix(tt.text, "NCCL"), errors.Is(err, fault.Invalid))
				return
			}
			require.NoError(t, err)
			var names []string
			for _, n := range chosen {
				names = append(names, n.name)
				require.Equal(t, strings.TrimSpace(tt.text) == "" && n.bridge(), n.last)
			}
			require.Equal(t, tt.names, names)
		})
	}
}

// TestNoInterface has no usable interface, whatever the list, or a list that leaves none; that
// error names the available ones.
func TestNoInterface(t *testing.T) {
	for _, tt := range []struct {
		text string
		nics []nic
		code fault.Code
		says string
	}{
		{"", nil, fault.NotSupported, "no network interface of this host is up and has an address"},
		{"", host("bare0"), fault.NotSupported, "no network interface of this host is up and has an address"},
		{"lo", nil, fault.NotSupported, "no network interface of this host is up and has an address"},
		{"^lo", host("lo", "bare0"), fault.Invalid, "GOCCL_SOCKET_IFNAME=^lo leaves no interface; up and with an address are lo"},
		{"wlan", host("lo", "eth0"), fault.Invalid, "GOCCL_SOCKET_IFNAME=wlan leaves no interface; up and with an address are lo, eth0"},
		{"NCCL_SOCKET_IFNAME=ib0", host("lo", "eth0"), fault.NotSupported,
			"NCCL_SOCKET_IFNAME=ib0 leaves no interface; up and with an address are lo, eth0"},
	} {
		sel, err := parseSelector(tt.text)
		require.NoError(t, err)
		_, err = sel.choose(tt.nics)
		require.ErrorIs(t, err, tt.code, tt.text)
		require.ErrorContains(t, err, tt.says)
	}
}

func TestOptions(t *testing.T) {
	doorbell := park.NewDoorbell()
	for _, o := range []Options{
		{},
		{Doorbell: doorbell, Interfaces: "^"},
		{Doorbell: doorbell, Interfaces: "no-such-interface"},
		{Doorbell: doorbell, Port: 65536},
		{Doorbell: doorbell, Port: -1},
		{Doorbell: doorbell, LastPort: 4000},
		{Doorbell: doorbell, Port: 4001, LastPort: 4000},
		{Doorbell: doorbell, Port: 4000, LastPort: 65536},
		{Doorbell: doorbell, Family: "ipv5"},
		{Doorbell: doorbell, Linger: -1},
		{Doorbell: doorbell, MaxUnauthenticated: -1},
	} {
		_, err := New(o)
		require.ErrorIs(t, err, fault.Invalid, "%+v", o)
	}
	f, _ := loopback(t, nil)
	_, err := New(Options{Doorbell: doorbell, Interfaces: "lo", Port: int(f.self.endpoints[0].port)})
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "GOCCL_PORT")
}

// TestPortRange has processes take the free ports of a range, one after the other.
func TestPortRange(t *testing.T) {
	f, doorbell := loopback(t, nil) // takes a port that the kernel holds free
	first := int(f.self.endpoints[0].port)
	if first+2 > mostPort {
		first = mostPort - 2
	}
	o := Options{Doorbell: doorbell, Interfaces: "lo", Port: first, LastPort: first + 2}
	taken := map[uint16]bool{}
	for {
		f, err := New(o)
		if err != nil {
			require.ErrorIs(t, err, fault.System)
			require.ErrorContains(t, err, fmt.Sprintf("every port of GOCCL_PORT=%d-%d is taken", first, first+2))
			break
		}
		defer f.Close()
		port := f.self.endpoints[0].port
		require.False(t, taken[port])
		require.GreaterOrEqual(t, int(port), first)
		require.LessOrEqual(t, int(port), first+2)
		taken[port] = true
	}
	require.NotEmpty(t, taken)
}

func TestFamily(t *testing.T) {
	nics := []nic{{name: "lo", loopback: true, prefixes: []netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}}}
	require.Equal(t, nics, ofFamily(nics, ""))
	require.Equal(t, nics[0].prefixes[:1], ofFamily(nics, "ipv4")[0].prefixes)
	require.Equal(t, nics[0].prefixes[1:], ofFamily(nics, "ipv6")[0].prefixes)
	require.Len(t, nics[0].prefixes, 2)
	_, err := selector{}.choose(ofFamily([]nic{{name: "eth0", prefixes: nics[0].prefixes[:1]}}, "ipv6"))
	require.ErrorIs(t, err, fault.NotSupported)
	f, _ := loopback(t, func(o *Options) { o.Family = "ipv4" })
	for _, e := range f.self.endpoints {
		require.True(t, e.prefix.Addr().Is4())
	}
}

// TestOffer has hosts with more addresses than the address of a process holds.
func TestOffer(t *testing.T) {
	loop := nic{name: "lo", loopback: true, prefixes: []netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}}
	nicOf := func(name string, prefixes ...string) nic {
		n := nic{name: name}
		for _, p := range prefixes {
			n.prefixes = append(n.prefixes, netip.MustParsePrefix(p))
		}
		return n
	}
	many := func(format string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(format, i+1))
		}
		return all
	}
	var bridges []nic
	for i := range 40 {
		bridges = append(bridges, nicOf(fmt.Sprintf("br-%d", i), fmt.Sprintf("172.%d.0.1/16", 16+i)))
	}
	for _, tt := range []struct {
		name      string
		nics      []nic
		has, left []string // some of them
		cut       int
	}{
		{"few", []nic{nicOf("eth0", "10.0.0.1/24", "10.0.0.2/24"), loop},
			[]string{"10.0.0.1", "10.0.0.2", "127.0.0.1"}, nil, 0},
		{"single addresses before that of the host",
			[]nic{nicOf("eth0", append(many("10.96.32.%d/32", 40), "10.0.0.1/24")...), loop},
			[]string{"10.96.32.1", "10.0.0.1", "127.0.0.1"}, []string{"10.96.32.40", "10.96.32.31"}, 11},
		{"the only address of an interface",
			[]nic{nicOf("eth0", many("10.0.0.%d/24", 50)...), nicOf("eth1", "10.9.0.1/32"), loop},
			[]string{"10.0.0.1", "10.9.0.1", "127.0.0.1"}, []string{"10.0.0.50"}, 21},
		{"one of each subnet", []nic{nicOf("eth0", append(many("10.0.0.%d/24", 50), "192.168.0.1/16")...)},
			[]string{"10.0.0.1", "192.168.0.1"}, []string{"10.0.0.50"}, 19},
		{"interfaces before bridges",
			append([]nic{nicOf("eth0", many("10.0.%d.1/24", 20)...)}, append(bridges, loop)...),
			[]string{"10.0.20.1", "172.16.0.1", "127.0.0.1"}, []string{"172.50.0.1"}, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wanted, left := offer(tt.nics)
			require.LessOrEqual(t, len(wanted), maxEndpoints)
			require.Len(t, left, tt.cut)
			texts := func(all []endpoint) (texts []string) {
				for _, e := range all {
					texts = append(texts, e.prefix.Addr().String())
				}
				return texts
			}
			require.Subset(t, texts(wanted), tt.has)
			require.Subset(t, texts(left), tt.left)
			require.IsNonDecreasing(t, func() (devices []int) {
				for _, e := range wanted {
					devices = append(devices, int(e.device))
				}
				return devices
			}(), "the order of the interfaces stays")
		})
	}
}

// TestTellLeft says in one line that addresses are not used.
func TestTellLeft(t *testing.T) {
	var said []string
	warn := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	f := &Fabric{opts: Options{Warn: warn}}
	f.tellLeft(nil)
	require.Empty(t, said)
	var left []endpoint
	for i := range 9 {
		left = append(left, end(fmt.Sprintf("10.0.0.%d/32", i), "eth0", 0, 0))
	}
	f.tellLeft(left)
	require.Len(t, said, 1)
	require.Contains(t, said[0], "this host has 41 addresses, of which 32 are used")
	require.Contains(t, said[0], "not used are 10.0.0.0 (eth0), 10.0.0.1 (eth0), 10.0.0.2 (eth0), 10.0.0.3 (eth0), …;")
}
