package topo

// Device is something on the bus of a machine that moves data.
type Device struct {
	Kind DeviceKind
	Name string   // that of the system: eth0, mlx5_0:1
	Bus  []string // its path on the PCI bus, from the root complex to itself; nil if it is not on one
	Node int      // the NUMA node that it is near to, -1 if that is not known
	Slot float64  // bytes a second between it and the bus; 0 if unknown
	Wire float64  // bytes a second between it and other machines; 0 if unknown, or if there is none
}

// DeviceKind is what a Device is.
type DeviceKind string

const (
	Interface DeviceKind = "interface" // of the network
	Adapter   DeviceKind = "adapter"   // a port of an RDMA adapter
	GPU       DeviceKind = "gpu"
)
