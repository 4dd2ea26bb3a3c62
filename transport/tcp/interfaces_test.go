package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/park"
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
		{"", all, []string{"eth0", "eth1", "eth10", "ib0", "lo"}},
		{"  ", all, []string{"eth0", "eth1", "eth10", "ib0", "lo"}},
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
