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
	protocol      = 8 // of addresses, handshake and frames
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
	last   bool   // of an interface that is likely to lead nowhere (nic.last): tried after all others
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
	secret      [32]byte // random, mixed with that of Options.SecretFile
	certificate [32]byte // its hash; zero without TLS
	pid         uint32
	hostname    string
	endpoints   []endpoint
	has         []netip.Addr // all addresses of this host; peers do not learn them
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
		last := byte(0)
		if e.last {
			last = 1
		}
		b = append(b, byte(len(ip)), byte(e.prefix.Bits()), e.device, last)
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
		const fixed = 4 + 2 + 4
		if len(r) < fixed {
			return bad("cut off at an endpoint")
		}
		size, bits, device, last := int(r[0]), int(r[1]), r[2], r[3]
		port, rate := binary.LittleEndian.Uint16(r[4:]), binary.LittleEndian.Uint32(r[6:])
		r = r[fixed:]
		if size != 4 && size != 16 || len(r) < size || bits > size*8 || last > 1 || port == 0 {
			return bad("malformed endpoint")
		}
		ip, _ := netip.AddrFromSlice(r[:size])
		r = r[size:]
		if ip.Is4In6() || !dialable(ip) {
			return bad("endpoint %v cannot be dialled", ip)
		}
		a.endpoints = append(a.endpoints,
			endpoint{prefix: netip.PrefixFrom(ip, bits), port: port, device: device, last: last == 1, rate: rate})
	}
	if len(r) != 0 {
		return bad("%d bytes too many", len(r))
	}
	return a, nil
}

// named returns an address and port of this process, with the name of its interface before it.
func (a *address) named(local string) string {
	if at, err := netip.ParseAddrPort(local); err == nil {
		for _, e := range a.endpoints {
			if e.prefix.Addr() == at.Addr().Unmap() {
				return e.name + " " + local
			}
		}
	}
	return local
}

// dialable reports whether an address means something on another host, too. Link-local addresses of
// IPv6 do not: they need the name of an interface. Those of IPv4 are what hosts on one cable have.
func dialable(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() || ip.IsLoopback() || ip.Is4() && ip.IsLinkLocalUnicast()
}

// usable returns the endpoints of to that from may dial, nearest first: loopback on the same host,
// the same subnet, then the rest in the peer's order with IPv4 before IPv6; at last what is likely
// to lead nowhere. An address that both hosts have, as the bridge of a container runtime, leads
// from each of them to itself; a link-local one leads to neighbours only.
func usable(from, to *address) []endpoint {
	var v4, v6 bool
	for _, e := range from.endpoints {
		v4 = v4 || e.prefix.Addr().Is4() && !e.loopback()
		v6 = v6 || e.prefix.Addr().Is6() && !e.loopback()
	}
	same := from.host == to.host
	leads := func(e endpoint) bool {
		ip := e.prefix.Addr()
		own := func(f endpoint) bool { return f.prefix.Addr() == ip }
		switch {
		case same:
			return true
		case ip.IsLoopback() || slices.ContainsFunc(from.endpoints, own):
			return false
		case ip.IsLinkLocalUnicast():
			return slices.ContainsFunc(from.endpoints, e.neighbour)
		}
		return ip.Is4() && v4 || ip.Is6() && v6
	}
	var out []endpoint
	for _, e := range to.endpoints {
		if leads(e) {
			out = append(out, e)
		}
	}
	near := func(e endpoint) int {
		ip := e.prefix.Addr()
		good := func(f endpoint) bool { return !f.last && f.neighbour(e) }
		neighbour := slices.ContainsFunc(from.endpoints, e.neighbour)
		switch {
		case e.loopback() && ip.Is4():
			return 0
		case e.loopback():
			return 1
		case !e.last && slices.ContainsFunc(from.endpoints, good):
			return 2
		case !e.last && !neighbour && ip.Is4():
			return 3
		case !e.last && !neighbour:
			return 4
		case neighbour:
			return 5
		case ip.Is4():
			return 6
		}
		return 7
	}
	slices.SortStableFunc(out, func(a, b endpoint) int { return near(a) - near(b) })
	return out
}
