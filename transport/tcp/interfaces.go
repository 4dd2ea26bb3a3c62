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
	last     bool   // it is tried after all others
}

// bridges lists prefixes of the names of interfaces that mostly join containers of this host, and
// lead nowhere else. But the address of a host may be on such a bridge, too (br-ex of OpenStack and
// OpenShift).
var bridges = []string{"docker", "podman", "veth", "virbr", "br-", "cni", "lxc"}

func (n nic) bridge() bool {
	return slices.ContainsFunc(bridges, func(p string) bool { return strings.HasPrefix(n.name, p) })
}

// choose applies the selector to the interfaces of a host. Where the user has not named them,
// bridges are tried after all others. Loopback comes at the end of the list.
func (s selector) choose(nics []nic) ([]nic, error) {
	var chosen, loops, bridged []nic
	for _, n := range nics {
		switch {
		case len(n.prefixes) == 0 || !s.accepts(n.name):
		case n.loopback:
			loops = append(loops, n)
		case n.bridge() && s.all():
			n.last = true
			bridged = append(bridged, n)
		default:
			chosen = append(chosen, n)
		}
	}
	chosen = slices.Concat(chosen, bridged, loops)
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

// hostInterfaces returns the interfaces that are up, with the addresses that other hosts may dial.
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
			if dialable(ip) {
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

// offer returns the addresses that a process listens on, and those that are too many for the
// address of a process (maxEndpoints). Then loopback is kept, the first address of each subnet, and
// the first one of each interface, before others: one of these may be all that leads to another
// host.
func offer(nics []nic) (wanted, left []endpoint) {
	type subnet struct {
		of     netip.Prefix
		device byte
	}
	var order []int // by index of wanted: what counts less is cut
	seen := map[subnet]bool{}
	for i, n := range nics {
		for at, p := range n.prefixes {
			e := endpoint{prefix: p, device: byte(i), last: n.last, rate: n.rate, name: n.name}
			net := subnet{p.Masked(), e.device}
			less := 3
			switch {
			case e.loopback() && at == 0:
				less = 0
			case !p.IsSingleIP() && !seen[net]:
				less = 1
			case at == 0:
				less = 2
			}
			seen[net] = true
			wanted, order = append(wanted, e), append(order, less)
		}
	}
	if len(wanted) <= maxEndpoints {
		return wanted, nil
	}
	best := make([]int, len(wanted))
	for i := range best {
		best[i] = i
	}
	slices.SortStableFunc(best, func(a, b int) int { return order[a] - order[b] })
	cut := best[maxEndpoints:]
	kept := make([]endpoint, 0, maxEndpoints)
	for i, e := range wanted {
		if slices.Contains(cut, i) {
			left = append(left, e)
		} else {
			kept = append(kept, e)
		}
	}
	return kept, left
}

// tellLeft says which addresses of this host peers are not told.
func (f *Fabric) tellLeft(left []endpoint) {
	if len(left) == 0 {
		return
	}
	const few = 4
	var words []string
	for _, e := range left[:min(len(left), few)] {
		words = append(words, fmt.Sprintf("%v (%s)", e.prefix.Addr(), e.name))
	}
	if len(left) > few {
		words = append(words, "…")
	}
	f.opts.Warn("tcp: this host has %d addresses, of which %d are used: one of each subnet, then others; not used are %s; "+
		"name the interfaces that lead to the other hosts (%s)", len(left)+maxEndpoints, maxEndpoints,
		strings.Join(words, ", "), ownVariable)
}
