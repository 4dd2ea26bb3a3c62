package topo

// Device is something on the bus of a machine that moves data.
type Device struct {
	Kind DeviceKind
	Name string   // that of the system: eth0, mlx5_0:1
	Bus  []string // its path on the PCI bus, from the root complex to itself; nil if it is not on one
	Node int      // the NUMA node that it is near to, -1 if that is not known
	Slot float64  // bytes a second between it and the bus; 0 if unknown
	Wire float64  // bytes a second between it and other machines; 0 if unknown, or if there is none

	Lanes []Lane // of a GPU: what connects it with others beside the bus
}

// Lane leads from a GPU to another one, or to a switch: NVLink.
type Lane struct {
	To    string  // where that is on the bus: "0000:65:00.0"
	Count int     // links
	Rate  float64 // bytes a second of all of them in one direction; 0 if unknown
}

// PCIRate returns what a connection of the PCI bus carries in one direction, in bytes a second:
// each lane has a number of transfers a second, of a bit each, less what the coding takes.
func PCIRate(transfers float64, lanes int) float64 {
	coding := 128.0 / 130
	if transfers < 8e9 { // before the third generation
		coding = 8.0 / 10
	}
	return transfers * float64(lanes) / 8 * coding
}

// DeviceKind is what a Device is.
type DeviceKind string

const (
	Interface DeviceKind = "interface" // of the network
	Adapter   DeviceKind = "adapter"   // a port of an RDMA adapter
	GPU       DeviceKind = "gpu"
)
