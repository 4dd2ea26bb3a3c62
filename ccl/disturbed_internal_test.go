package ccl

import "github.com/goccl/goccl/transport/faulty"

// Disturb leads all links of n through a network with faults. It is called before the first group.
func (n *Node) Disturb(network *faulty.Network, opts Options) error {
	for _, path := range paths {
		if !opts.allows(path.name) {
			continue
		}
		inner, err := path.open(n, &opts)
		if err != nil {
			return err
		}
		fabric := network.Wrap(inner, n.doorbell)
		n.progress.Watch(fabric)
		n.fabrics[path.name] = fabric
	}
	return nil
}
