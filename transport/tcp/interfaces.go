package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// selector decides by name which interfaces to use.
type selector struct {
	variable string // where the user wrote the list
	text     string // as the user wrote it
	except   bool
	exact    []string
	prefix   []string
}

const ownVariable = "GOCCL_SOCKET_IFNAME"

// others has the variables of other libraries whose lists count where there is none for goccl. In
// Gloo's each name is a whole one.
var others = map[string]struct{ exact bool }{
	"NCCL_SOCKET_IFNAME": {false},
	"GLOO_SOCKET_IFNAME": {true},
}

// parseSelector parses a list such as "eth0,ib", "=eth0" or "^docker,lo", or one of another
// library's, with its variable: "NCCL_SOCKET_IFNAME=^=docker0,lo", where = holds for all names of
// the list. Empty names do not count, as after a last comma, and an alias (eth0:1) means its
// interface.
func parseSelector(text string) (selector, error) {
	s := selector{variable: ownVariable, text: strings.TrimSpace(text)}
	whole := false
	variable, list, _ := strings.Cut(s.text, "=")
	of, theirs := others[variable]
	if theirs {
		s.variable, s.text, whole = variable, strings.TrimSpace(list), of.exact
	}
	rest := s.text
	if rest == "" {
		return s, nil
	}
	rest, s.except = strings.CutPrefix(rest, "^")
	if theirs && strings.HasPrefix(rest, "=") {
		whole = true
	}
	for _, part := range strings.Split(rest, ",") {
		name := strings.TrimSpace(part)
		if name == "" {
			continue
		}
		name, exact := strings.CutPrefix(name, "=")
		name, _, _ = strings.Cut(name, ":")
		if name == "" || strings.ContainsAny(name, "^= \t/") {
			return s, s.invalid("%q is not a name", part)
		}
		if exact || whole {
			s.exact = append(s.exact, name)
		} else {
			s.prefix = append(s.prefix, name)
		}
	}
	if s.all() {
		return s, s.invalid("it has no name")
	}
	return s, nil
}

func (s selector) invalid(format string, args ...any) error {
	return fault.New(s.class(), "tcp: %s=%s: %s; write \"eth0,ib\" for names or prefixes, "+
		"\"=eth0\" for one exact name, or \"^docker,lo\" for all but these", s.variable, s.text,
		fmt.Sprintf(format, args...))
}

// class returns that of errors in the list. What a cluster sets for another library is no order to
// use TCP: ranks of one host do without.
func (s selector) class() fault.Code {
	if s.variable == ownVariable {
		return fault.Invalid
	}
	return fault.NotSupported
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
	return nil, fault.New(s.class(), "tcp: %s=%s leaves no interface; up and with an address are %s",
		s.variable, s.text, strings.Join(have, ", "))
}

// hostInterfaces returns the interfaces that are up. It leaves out link-local addresses: they mean
// nothing without the name of the interface on the other host.
func hostInterfaces() ([]nic, error) {
	all, err := net.Interfaces()
	if err != nil {
		// Ranks of one host do without.
		return nil, fault.Wrap(fault.NotSupported, err, "tcp: cannot read the network interfaces; is netlink refused "+
			"to this process (RestrictAddressFamilies of systemd, a seccomp filter)?")
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
