package ccl

import (
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// optionsFor returns the options of parts that no group has used yet: those that a caller asks for,
// or else those that the Node was made with.
func (n *Node) optionsFor(asked *NodeOptions) (NodeOptions, error) {
	if asked == nil {
		return n.opts, nil
	}
	return asked.settled()
}

// opened keeps a fabric, and the options that decide for all groups from now on.
func (n *Node) opened(name string, fabric transport.Fabric, opts *Options) {
	n.fabrics[name] = fabric
	switch name {
	case "tcp":
		n.opts.take(withTCP, &opts.NodeOptions)
		n.tls = opts.TLS
	case "rdma":
		n.opts.take(withRDMA, &opts.NodeOptions)
	}
}

// decided reports whether the options of a scope hold for all groups of the process.
func (n *Node) decided(s scope) bool {
	switch s {
	case perProcess:
		return true
	case withTCP:
		return n.fabrics["tcp"] != nil
	case withRDMA:
		return n.fabrics["rdma"] != nil
	case perSignal:
		return n.listens
	}
	return false
}

// take takes over the options of a scope.
func (o *NodeOptions) take(s scope, from *NodeOptions) {
	all, theirs := Options{NodeOptions: *o}, Options{NodeOptions: *from}
	for _, row := range optionTable {
		if row.Scope == s {
			row.copy(&all, &theirs)
		}
	}
	*o = all.NodeOptions
}

// checkTrust returns an error if the process has opened TCP with less than a group trusts in.
func (n *Node) checkTrust(opts *Options) error {
	if n.tls != opts.TLS {
		return fault.New(fault.Invalid,
			"GOCCL_TLS=%s, but an earlier group of this process has opened TCP otherwise; all groups need the same",
			map[bool]string{true: "1", false: "0"}[opts.TLS])
	}
	if file := opts.SecretFile; file != "" && file != n.opts.SecretFile {
		return fault.New(fault.Invalid,
			"GOCCL_SECRET_FILE=%s, but an earlier group of this process has opened TCP with %s; all groups need "+
				"the same", file, setting("GOCCL_SECRET_FILE", n.opts.SecretFile))
	}
	return nil
}

// tellIgnored warns of options that a group asks for in vain, once of each value.
func (n *Node) tellIgnored(asked *NodeOptions, warn func(format string, args ...any)) {
	if asked == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	theirs, ours := Options{NodeOptions: *asked}, Options{NodeOptions: n.opts}
	for _, row := range optionTable {
		if n.decided(row.Scope) {
			n.tellVain(row, row.get(&theirs), row.get(&ours), warn)
		}
	}
}

// tellVain warns, once of each value, of an option that another group has decided otherwise. The
// caller holds mu.
func (n *Node) tellVain(row *option, wanted, have string, warn func(format string, args ...any)) {
	name := setting(row.Name, wanted)
	if wanted == "" || wanted == have || n.told[name] {
		return
	}
	n.told[name] = true
	warn("%s has no effect: %s, and that one had %s; set it for that group, or for the whole process by the "+
		"environment", name, deciders[row.Scope], setting(row.Name, have))
}

func setting(name, value string) string {
	if value == "" {
		return "no " + name
	}
	return fmt.Sprintf("%s=%s", name, value)
}
