package ccl

import (
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/faulty"
)

// Disturb leads all links of n through a network with faults. It is called before the first group.
func (n *Node) Disturb(network *faulty.Network, opts GroupOptions) error {
	all := &Options{NodeOptions: n.opts, GroupOptions: opts}
	for _, path := range paths {
		if !opts.allows(path.name) {
			continue
		}
		inner, err := path.open(n, all)
		if err != nil {
			return err
		}
		fabric := network.Wrap(inner, n.doorbell)
		if p, ok := fabric.(transport.Poller); ok {
			n.progress.Watch(p)
		}
		n.fabrics[path.name] = fabric
	}
	return nil
}
