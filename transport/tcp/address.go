package tcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

const (
	protocol      = 7 // of addresses, handshake and frames
	maxEndpoints  = 32
	maxHostname   = 64
	addressMagic  = "gTCP"
	addressPrefix = len(addressMagic) + 1 + 16 + 16 + 32 + 32 + 4
)

// endpoint is one address that a process listens on, with its network prefix.
type endpoint struct {
	prefix netip.Prefix
	port   uint16
	device byte   // number of the interface within the process
	rate   uint32 // of the interface in Mbit/s, 0 if the system does not know it
	name   string // of the interface; peers do not learn it
}

// neighbour reports whether another host's endpoint is in the same subnet.
func (e endpoint) neighbour(other endpoint) bool {
	return !e.loopback() && e.prefix.Bits() == other.prefix.Bits() && e.prefix.Contains(other.prefix.Addr())
}

func (e endpoint) addrPort() netip.AddrPort { return netip.AddrPortFrom(e.prefix.Addr(), e.port) }
func (e endpoint) loopback() bool           { return e.prefix.Addr().IsLoopback() }

// address is what a peer needs to know about a process.
type address struct {
	host        [16]byte // equal for processes that share loopback
	id          [16]byte // random
	secret      [32]byte // random, mixed with Options.Secret
	certificate [32]byte // its hash; zero without TLS
	pid         uint32
	hostname    string
	endpoints   []endpoint
}

// who identifies the process in messages.
func (a *address) who() string { return fmt.Sprintf("host %s, pid %d", a.hostname, a.pid) }

func (a *address) encode() []byte {
	b := append([]byte(addressMagic), protocol)
	b = append(b, a.host[:]...)
	b = append(b, a.id[:]...)
	b = append(b, a.secret[:]...)
	b = append(b, a.certificate[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.pid)
	b = append(b, byte(len(a.hostname)))
	b = append(b, a.hostname...)
	b = append(b, byte(len(a.endpoints)))
	for _, e := range a.endpoints {
		ip := e.prefix.Addr().AsSlice()
		b = append(b, byte(len(ip)), byte(e.prefix.Bits()), e.device)
		b = binary.LittleEndian.AppendUint16(b, e.port)
		b = binary.LittleEndian.AppendUint32(b, e.rate)
		b = append(b, ip...)
	}
	return b
}

// parseAddress parses an address received from a peer. It accepts exactly what encode writes.
func parseAddress(b []byte) (*address, error) {
	bad := func(format string, args ...any) (*address, error) {
		return nil, fault.New(fault.Invalid, "tcp: peer address of %d bytes: %s", len(b), fmt.Sprintf(format, args...))
	}
	if len(b) > transport.MaxAddress || len(b) < addressPrefix || string(b[:len(addressMagic)]) != addressMagic {
		return bad("not the address of a TCP fabric")
	}
	r := b[len(addressMagic):]
	if r[0] != protocol {
		return bad(
			"the peer speaks version %d of the TCP transport, this process version %d; run the same goccl everywhere",
			r[0], protocol)
	}
	r = r[1:]
	a := &address{}
	r = r[copy(a.host[:], r):]
	r = r[copy(a.id[:], r):]
	r = r[copy(a.secret[:], r):]
	r = r[copy(a.certificate[:], r):]
	a.pid = binary.LittleEndian.Uint32(r)
	r = r[4:]
	if len(r) < 1 || int(r[0]) > maxHostname || len(r) < 1+int(r[0])+1 {
		return bad("cut off at the host name")
	}
	name := r[1 : 1+int(r[0])]
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return bad("host name %q", name)
		}
	}
	a.hostname = string(name)
	r = r[1+len(name):]
	n := int(r[0])
	r = r[1:]
	if n == 0 || n > maxEndpoints {
		return bad("%d endpoints", n)
	}
	for range n {
		const fixed = 3 + 2 + 4
		if len(r) < fixed {
			return bad("cut off at an endpoint")
		}
		size, bits, device := int(r[0]), int(r[1]), r[2]
		port, rate := binary.LittleEndian.Uint16(r[3:]), binary.LittleEndian.Uint32(r[5:])
		r = r[fixed:]
		if size != 4 && size != 16 || len(r) < size || bits > size*8 || port == 0 {
			return bad("malformed endpoint")
		}
		ip, _ := netip.AddrFromSlice(r[:size])
		r = r[size:]
		if ip.Is4In6() || !ip.IsGlobalUnicast() && !ip.IsLoopback() {
			return bad("endpoint %v cannot be dialled", ip)
		}
		a.endpoints = append(a.endpoints,
			endpoint{prefix: netip.PrefixFrom(ip, bits), port: port, device: device, rate: rate})
	}
	if len(r) != 0 {
		return bad("%d bytes too many", len(r))
	}
	return a, nil
}

// usable returns the endpoints of to that from may dial, nearest first: loopback on the same host,
// the same subnet, then the rest in the peer's order with IPv4 before IPv6.
func usable(from, to *address) []endpoint {
	var v4, v6 bool
	for _, e := range from.endpoints {
		v4 = v4 || e.prefix.Addr().Is4() && !e.loopback()
		v6 = v6 || e.prefix.Addr().Is6() && !e.loopback()
	}
	same := from.host == to.host
	var out []endpoint
	for _, e := range to.endpoints {
		if ip := e.prefix.Addr(); same || !ip.IsLoopback() && (ip.Is4() && v4 || ip.Is6() && v6) {
			out = append(out, e)
		}
	}
	near := func(e endpoint) int {
		ip := e.prefix.Addr()
		switch {
		case e.loopback() && ip.Is4():
			return 0
		case e.loopback():
			return 1
		case slices.ContainsFunc(from.endpoints, func(f endpoint) bool { return f.neighbour(e) }):
			return 2
		case ip.Is4():
			return 3
		}
		return 4
	}
	slices.SortStableFunc(out, func(a, b endpoint) int { return near(a) - near(b) })
	return out
}
