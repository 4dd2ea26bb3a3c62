package tcp

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// selector decides by name which interfaces to use.
type selector struct {
	text   string // as the user wrote it
	except bool
	exact  []string
	prefix []string
}

// parseSelector parses a list such as "eth0,ib", "=eth0" or "^docker,lo".
func parseSelector(text string) (selector, error) {
	s := selector{text: text}
	rest := strings.TrimSpace(text)
	if rest == "" {
		return s, nil
	}
	rest, s.except = strings.CutPrefix(rest, "^")
	for _, part := range strings.Split(rest, ",") {
		name := strings.TrimSpace(part)
		name, exact := strings.CutPrefix(name, "=")
		if name == "" || strings.ContainsAny(name, "^= \t/") {
			return s, fault.New(fault.Invalid,
				"tcp: interface list %q: %q is not a name; write \"eth0,ib\" for names or prefixes, "+
					"\"=eth0\" for one exact name, or \"^docker,lo\" for all but these", text, part)
		}
		if exact {
			s.exact = append(s.exact, name)
		} else {
			s.prefix = append(s.prefix, name)
		}
	}
	return s, nil
}

// all reports whether the list is empty.
func (s selector) all() bool { return len(s.exact) == 0 && len(s.prefix) == 0 }

func (s selector) accepts(name string) bool {
	if s.all() {
		return true
	}
	hit := slices.Contains(s.exact, name) ||
		slices.ContainsFunc(s.prefix, func(p string) bool { return strings.HasPrefix(name, p) })
	return hit != s.except
}

// nic is an interface of this host with its usable addresses.
type nic struct {
	name     string
	loopback bool
	prefixes []netip.Prefix
	rate     uint32 // in Mbit/s, 0 if the system does not know it
}

// bridges lists prefixes of the names of interfaces that join containers of this host and lead
// nowhere else.
var bridges = []string{"docker", "podman", "veth", "virbr", "br-", "cni", "lxc"}

func (n nic) bridge() bool {
	return slices.ContainsFunc(bridges, func(p string) bool { return strings.HasPrefix(n.name, p) })
}

// choose applies the selector to the interfaces of a host. Loopback comes last.
func (s selector) choose(nics []nic) ([]nic, error) {
	var chosen, loops, fallback []nic
	for _, n := range nics {
		switch {
		case len(n.prefixes) == 0 || !s.accepts(n.name):
		case n.loopback:
			loops = append(loops, n)
		case n.bridge() && s.all():
			fallback = append(fallback, n)
		default:
			chosen = append(chosen, n)
		}
	}
	if len(chosen) == 0 {
		chosen = fallback
	}
	chosen = append(chosen, loops...)
	if len(chosen) > 0 {
		return chosen, nil
	}
	var have []string
	for _, n := range nics {
		if len(n.prefixes) > 0 {
			have = append(have, n.name)
		}
	}
	if len(have) == 0 {
		return nil, fault.New(fault.NotSupported, "tcp: no network interface of this host is up and has an address")
	}
	return nil, fault.New(fault.Invalid,
		"tcp: the interface list %q leaves no interface; up and with an address are %s",
		s.text, strings.Join(have, ", "))
}

// hostInterfaces returns the interfaces that are up. It leaves out link-local addresses: they mean
// nothing without the name of the interface on the other host.
func hostInterfaces() ([]nic, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "tcp: cannot read the network interfaces")
	}
	var nics []nic
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		n := nic{name: i.Name, loopback: i.Flags&net.FlagLoopback != 0, rate: linkRate(i.Name)}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			ip := p.Addr().Unmap()
			if ip.IsGlobalUnicast() || ip.IsLoopback() {
				n.prefixes = append(n.prefixes, netip.PrefixFrom(ip, p.Bits()))
			}
		}
		nics = append(nics, n)
	}
	return nics, nil
}

// ofFamily leaves only the addresses of a family, or all if it is empty.
func ofFamily(nics []nic, family string) []nic {
	if family == "" {
		return nics
	}
	kept := slices.Clone(nics)
	for i := range kept {
		kept[i].prefixes = slices.DeleteFunc(slices.Clone(kept[i].prefixes),
			func(p netip.Prefix) bool { return p.Addr().Is4() != (family == "ipv4") })
	}
	return kept
}
