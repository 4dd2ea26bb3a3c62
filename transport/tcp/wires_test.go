package tcp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func end(prefix, name string, device byte, rate uint32) endpoint {
	return endpoint{prefix: netip.MustParsePrefix(prefix), port: 4000, device: device, rate: rate, name: name}
}

func doubtful(prefix, name string, device byte) endpoint {
	e := end(prefix, name, device, 0)
	e.last = true
	return e
}

// has says which addresses a host has that are no endpoints.
func has(a *address, ips ...string) *address {
	for _, ip := range ips {
		a.has = append(a.has, netip.MustParseAddr(ip))
	}
	return a
}

func TestWiresOrder(t *testing.T) {
	host := func(n byte, ends ...endpoint) *address {
		a := sample(n)
		a.endpoints = ends
		return a
	}
	for _, tt := range []struct {
		name     string
		from, to *address
		want     []string
		probed   []int
	}{
		{"rates of both ends count",
			host(1, end("10.0.1.1/24", "a", 0, 1000), end("10.0.2.1/24", "b", 1, 100000),
				end("10.0.3.1/24", "c", 2, 25000)),
			host(2, end("10.0.1.2/24", "", 0, 1000), end("10.0.2.2/24", "", 1, 100), end("10.0.3.2/24", "", 2, 10000)),
			[]string{"c 10.0.3.1 → 10.0.3.2", "a 10.0.1.1 → 10.0.1.2", "b 10.0.2.1 → 10.0.2.2"}, []int{0, 1, 2}},
		{"unknown rates change nothing",
			host(1, end("10.0.1.1/24", "a", 0, 0), end("10.0.2.1/24", "b", 1, 1000)),
			host(2, end("10.0.1.2/24", "", 0, 1000), end("10.0.2.2/24", "", 1, 0)),
			[]string{"a 10.0.1.1 → 10.0.1.2", "b 10.0.2.1 → 10.0.2.2"}, []int{0, 1}},
		{"two interfaces of one subnet are apart",
			host(1, end("10.0.1.1/24", "a", 0, 0), end("10.0.1.2/24", "b", 1, 0)),
			host(2, end("10.0.1.3/24", "", 0, 0)),
			[]string{"a 10.0.1.1 → 10.0.1.3", "b 10.0.1.2 → 10.0.1.3"}, []int{0, 1}},
		{"families of the same interfaces are one wire",
			host(1, end("10.0.1.1/24", "a", 0, 0), end("fd00::1/64", "a", 0, 0)),
			host(2, end("10.0.1.2/24", "", 0, 0), end("fd00::2/64", "", 0, 0)),
			[]string{"a 10.0.1.1 → 10.0.1.2", "a fd00::1 → fd00::2"}, []int{0}},
		{"what is likely to lead nowhere is not probed, and its rate does not count",
			host(1, end("10.0.1.1/24", "a", 0, 1000), end("10.0.2.1/24", "b", 1, 25000),
				doubtful("10.8.0.1/24", "br-ex", 2)),
			host(2, end("10.0.1.2/24", "", 0, 1000), end("10.0.2.2/24", "", 1, 25000),
				doubtful("10.8.0.2/24", "", 2)),
			[]string{"b 10.0.2.1 → 10.0.2.2", "a 10.0.1.1 → 10.0.1.2", "br-ex 10.8.0.1 → 10.8.0.2"}, []int{0, 1}},
		{"the other end of a bridge comes last",
			host(1, doubtful("10.8.0.1/24", "br-ex", 0), end("10.0.1.1/24", "a", 1, 0)),
			host(2, end("10.8.0.2/24", "", 0, 0), end("10.9.1.2/24", "", 1, 0)),
			[]string{"10.9.1.2", "br-ex 10.8.0.1 → 10.8.0.2"}, []int{0}},
		{"bridges only", host(1, doubtful("10.8.0.1/24", "br-a", 0), doubtful("10.9.0.1/24", "br-b", 1)),
			host(2, doubtful("10.8.0.2/24", "", 0), doubtful("10.9.0.2/24", "", 1)),
			[]string{"br-a 10.8.0.1 → 10.8.0.2", "br-b 10.9.0.1 → 10.9.0.2"}, []int{0, 1}},
		{"own addresses that peers are not told", has(host(1, end("10.0.1.1/24", "a", 0, 0)), "10.96.0.1"),
			host(2, end("10.96.0.1/32", "", 0, 0), end("10.0.1.2/24", "", 0, 0)),
			[]string{"a 10.0.1.1 → 10.0.1.2"}, []int{0}},
		{"no way", has(host(1, end("10.0.1.1/24", "a", 0, 0)), "10.96.0.1"), host(2, end("10.96.0.1/32", "", 0, 0)),
			nil, nil},
		{"routes", host(1, end("10.0.1.1/24", "a", 0, 0)), host(2, end("10.9.1.2/24", "", 0, 0)),
			[]string{"10.9.1.2"}, []int{0}},
		{"one host", host(1, end("10.0.1.1/24", "a", 0, 0), end("127.0.0.1/8", "lo", 1, 0)),
			host(1, end("10.0.1.1/24", "", 0, 0), end("127.0.0.1/8", "", 1, 0)),
			[]string{"127.0.0.1", "10.0.1.1"}, []int{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := wires(tt.from, tt.to)
			var got []string
			for _, w := range all {
				got = append(got, w.String())
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.probed, contenders(all))
		})
	}
}

// TestProbe probes three wires: one that refuses, one that never answers, and one that leads to the
// peer. All Connects use what one of them has found.
func TestProbe(t *testing.T) {
	a, b, doorbellA, doorbellB := ordered(t, nil)
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer deaf.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone.Close()
	port := func(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }
	la, lb := join(t, a, b, 1, 1)
	p := la.pair
	at := func(port uint16, device byte) wire {
		return wire{to: endpoint{prefix: netip.MustParsePrefix("127.0.0.1/8"), port: port, device: device}}
	}
	all := []wire{at(port(gone), 1), at(port(deaf), 2), at(b.self.endpoints[0].port, 3)}
	contend := []int{0, 1, 2}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	begun := time.Now()
	perm, took := p.probe(ctx, all, contend)
	require.Equal(t, []int{2, 0, 1}, perm)
	require.Less(t, took[2], probeTime)
	require.Less(t, time.Since(begun), hang/2)
	perm, _ = p.probe(ctx, all[:1], contend[:1])
	require.Nil(t, perm, "nobody answers")
	// The connection that was there goes on.
	commit(t, la.Channel(0), "undisturbed")
	require.Equal(t, "undisturbed", receive(t, b, doorbellB, lb.Channel(0)))
	commit(t, lb.Channel(0), "back")
	require.Equal(t, "back", receive(t, a, doorbellA, la.Channel(0)))
}
