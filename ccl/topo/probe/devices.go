package probe

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
)

// Devices returns the network interfaces that are up, but for loopback and those that are parts of
// others, the ports of RDMA adapters that are active, and NVIDIA's GPUs, from the /sys below root.
func Devices(root string) []topo.Device {
	return slices.Concat(gpus(root), adapters(root), networks(root))
}

// folders returns what matches a pattern below root, in the order of its numbers.
func folders(root, pattern string) []string {
	all, _ := filepath.Glob(path.Join(root, pattern))
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(path.Base(a)), len(path.Base(b))), cmp.Compare(a, b))
	})
	return all
}

// on fills in where on the bus a device is, for its folder there.
func on(d topo.Device, folder string) topo.Device {
	d.Bus, d.Node = BusPath(folder), -1
	for n := len(d.Bus); n > 1 && !strings.Contains(d.Bus[n-1], ":"); n-- { // virtio1, on a device of the bus
		d.Bus = d.Bus[:n-1]
	}
	if node, err := strconv.Atoi(word(folder, "numa_node")); err == nil {
		d.Node = node
	}
	transfers, _, _ := strings.Cut(word(folder, "max_link_speed"), " ") // 16.0 GT/s PCIe
	rate, _ := strconv.ParseFloat(transfers, 64)
	lanes, _ := strconv.Atoi(word(folder, "max_link_width"))
	if rate > 0 && rate < 1000 && lanes > 0 && lanes <= 64 { // 255 lanes, where there are none
		d.Slot = topo.PCIRate(rate*1e9, lanes)
	}
	return d
}

func networks(root string) (all []topo.Device) {
	const ethernet, infiniband, loopback = "1", "32", "lo"
	for _, folder := range folders(root, "sys/class/net/*") {
		kind, state := word(folder, "type"), word(folder, "operstate")
		name := path.Base(folder)
		if kind != ethernet && kind != infiniband || state != "up" && state != "unknown" || name == loopback ||
			there(folder, "master") || there(folder, "bridge") {
			continue
		}
		d := on(topo.Device{Kind: topo.Interface, Name: name}, path.Join(folder, "device"))
		if mbit, err := strconv.ParseFloat(word(folder, "speed"), 64); err == nil && mbit > 0 {
			d.Wire = mbit * 1e6 / 8
		}
		all = append(all, d)
	}
	return all
}

func there(folder, name string) bool {
	found, _ := filepath.Glob(path.Join(folder, name))
	return len(found) > 0
}

func adapters(root string) (all []topo.Device) {
	for _, folder := range folders(root, "sys/class/infiniband/*") {
		for _, port := range folders(folder, "ports/*") {
			if !strings.HasPrefix(word(port, "state"), "4:") { // ACTIVE
				continue
			}
			name := path.Base(folder) + ":" + path.Base(port)
			d := on(topo.Device{Kind: topo.Adapter, Name: name}, path.Join(folder, "device"))
			number, _, _ := strings.Cut(word(port, "rate"), " ") // 100 Gb/sec (4X EDR)
			if gbit, err := strconv.ParseFloat(number, 64); err == nil && gbit > 0 {
				d.Wire = gbit * 1e9 / 8
			}
			all = append(all, d)
		}
	}
	return all
}

func gpus(root string) (all []topo.Device) {
	const nvidia, display, accelerator = "0x10de", "0x0300", "0x0302"
	for _, folder := range folders(root, "sys/bus/pci/devices/*") {
		class := word(folder, "class")
		drawsOrComputes := strings.HasPrefix(class, display) || strings.HasPrefix(class, accelerator)
		if word(folder, "vendor") == nvidia && drawsOrComputes {
			all = append(all, on(topo.Device{Kind: topo.GPU, Name: "gpu" + strconv.Itoa(len(all))}, folder))
		}
	}
	return all
}
