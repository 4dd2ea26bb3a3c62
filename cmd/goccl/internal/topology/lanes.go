package topology

import (
	"maps"
	"slices"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
)

// library is what cuda/nvml says of GPUs, by where they are on the bus.
type library interface {
	Links(bus string) (map[string]int, error)
	Capability(bus string) (int, error)
}

// addLanes adds the NVLinks of the GPUs among the devices. Of GPUs that this container does not
// have nothing is known.
func addLanes(devices []topo.Device, nvml library) {
	for i := range devices {
		d := &devices[i]
		if d.Kind != topo.GPU || len(d.Bus) == 0 {
			continue
		}
		bus := d.Bus[len(d.Bus)-1]
		links, err := nvml.Links(bus)
		if err != nil {
			continue
		}
		each := 0.0
		if capability, err := nvml.Capability(bus); err == nil {
			each = network.NVLinkRate(int64(capability))
		}
		for _, to := range slices.Sorted(maps.Keys(links)) {
			d.Lanes = append(d.Lanes, topo.Lane{To: to, Count: links[to], Rate: each * float64(links[to])})
		}
	}
}
