package tcp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// sample returns the address of a process on a host. The endpoints are prefixes, all with port
// 4000.
func sample(host byte, prefixes ...string) *address {
	a := &address{host: [16]byte{host}, id: [16]byte{host, 1}, secret: [32]byte{2}, pid: 77, hostname: "node"}
	for _, p := range prefixes {
		a.endpoints = append(a.endpoints, endpoint{prefix: netip.MustParsePrefix(p), port: 4000})
	}
	return a
}

// bridged says that the address at an index is that of a bridge.
func bridged(a *address, at int) *address {
	a.endpoints[at].last = true
	return a
}

func TestAddressRoundTrip(t *testing.T) {
	full := sample(1)
	for i := range maxEndpoints {
		full.endpoints = append(full.endpoints,
			endpoint{prefix: netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i)}), 64),
				port: 1, device: byte(i), last: i%2 == 1, rate: 1 << i})
	}
	for len(full.hostname) < maxHostname {
		full.hostname += "n"
	}
	for _, a := range []*address{sample(1, "127.0.0.1/8"), sample(2, "10.1.2.3/24", "fd00::2/64", "::1/128"), full} {
		b := a.encode()
		require.LessOrEqual(t, len(b), transport.MaxAddress)
		got, err := parseAddress(b)
		require.NoError(t, err)
		require.Equal(t, a, got)
		for n := range b {
			_, err := parseAddress(b[:n])
			require.Error(t, err, "cut to %d bytes", n)
		}
		_, err = parseAddress(append(b, 0))
		require.Error(t, err)
	}
	other := sample(1, "127.0.0.1/8").encode()
	other[len(addressMagic)]++
	_, err := parseAddress(other)
	require.ErrorContains(t, err, fmt.Sprint("this process version ", protocol))
}

func TestUsable(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to *address
		want     []string // endpoints of to, nearest first; empty: not reachable
	}{
		{"loopback first on one host", sample(1, "10.0.0.1/24", "127.0.0.1/8"),
			sample(1, "10.0.0.1/24", "127.0.0.1/8"), []string{"127.0.0.1", "10.0.0.1"}},
		{"no loopback between hosts", sample(1, "10.0.0.1/24", "127.0.0.1/8"),
			sample(2, "10.0.0.2/24", "127.0.0.1/8"), []string{"10.0.0.2"}},
		{"loopback alone leads nowhere", sample(1, "127.0.0.1/8"), sample(2, "127.0.0.1/8"), nil},
		{"same subnet first", sample(1, "10.0.5.1/24"),
			sample(2, "172.16.0.9/16", "10.0.5.9/24"), []string{"10.0.5.9", "172.16.0.9"}},
		{"same subnet IPv6 first", sample(1, "10.0.5.1/24", "fd00:1::1/64"),
			sample(2, "172.16.0.9/16", "fd00:1::9/64"), []string{"fd00:1::9", "172.16.0.9"}},
		{"IPv4 before IPv6", sample(1, "10.0.5.1/24", "fd00:1::1/64"),
			sample(2, "fd00:2::9/64", "172.16.0.9/16"), []string{"172.16.0.9", "fd00:2::9"}},
		{"only families of both", sample(1, "10.0.5.1/24"),
			sample(2, "fd00:2::9/64", "172.16.0.9/16"), []string{"172.16.0.9"}},
		{"no family in common", sample(1, "10.0.5.1/24"), sample(2, "fd00:2::9/64"), nil},
		{"an address that both hosts have leads nowhere", sample(1, "10.0.0.1/24", "172.17.0.1/16"),
			sample(2, "172.17.0.1/16", "10.0.0.2/24"), []string{"10.0.0.2"}},
		{"no other address", sample(1, "172.17.0.2/16"), sample(2, "172.17.0.2/16"), nil},
		{"link-local", sample(1, "169.254.1.1/16"), sample(2, "169.254.1.2/16"), []string{"169.254.1.2"}},
		{"link-local leads to neighbours only", sample(1, "10.0.0.1/24"), sample(2, "169.254.1.2/16"), nil},
		{"bridges come last", bridged(sample(1, "10.8.0.1/24", "10.1.0.1/24"), 0),
			bridged(sample(2, "10.8.0.2/24", "10.7.0.2/24"), 0), []string{"10.7.0.2", "10.8.0.2"}},
		{"the bridge of one side comes last", bridged(sample(1, "10.8.0.1/24", "10.1.0.1/24"), 0),
			sample(2, "10.8.0.2/24", "10.7.0.2/24"), []string{"10.7.0.2", "10.8.0.2"}},
		{"bridges that lead elsewhere", sample(1, "10.1.0.1/24"),
			bridged(sample(2, "172.18.0.1/16", "10.7.0.2/24"), 0), []string{"10.7.0.2", "172.18.0.1"}},
		{"families do not matter on one host", sample(1, "127.0.0.1/8"),
			sample(1, "fd00:2::9/64"), []string{"fd00:2::9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, e := range usable(tt.from, tt.to) {
				got = append(got, e.prefix.Addr().String())
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, len(tt.want) > 0, reaches(tt.from, tt.to))
			require.Equal(t, reaches(tt.to, tt.from), reaches(tt.from, tt.to), "both sides must decide alike")
		})
	}
}

func FuzzAddress(f *testing.F) {
	f.Add(sample(1, "127.0.0.1/8").encode())
	f.Add(sample(2, "10.1.2.3/24", "fd00::2/64", "::1/128").encode())
	self := sample(1, "127.0.0.1/8", "10.0.0.1/24")
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAddress(b)
		if err != nil {
			return
		}
		if string(a.encode()) != string(b) {
			t.Fatalf("%x is read as %+v, which is written as %x", b, a, a.encode())
		}
		if reaches(self, a) != reaches(a, self) {
			t.Fatalf("reaches is not symmetric for %+v", a)
		}
		if a.who() == "" || len(a.endpoints) > maxEndpoints {
			t.Fatalf("out of bounds: %+v", a)
		}
	})
}

func TestReroute(t *testing.T) {
	a := sample(2, "10.1.2.3/24", "fd00::2/64")
	var asked []string
	b, err := Reroute(a.encode(), func(at netip.AddrPort) (uint16, error) {
		asked = append(asked, at.String())
		return uint16(5000 + len(asked)), nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"10.1.2.3:4000", "[fd00::2]:4000"}, asked)
	a.endpoints[0].port, a.endpoints[1].port = 5001, 5002
	require.Equal(t, a.encode(), b)
	refused := fmt.Errorf("no port")
	_, err = Reroute(b, func(netip.AddrPort) (uint16, error) { return 0, refused })
	require.ErrorIs(t, err, refused)
	_, err = Reroute(b[1:], nil)
	require.Error(t, err)
}
