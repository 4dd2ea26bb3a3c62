package probe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// BusPath returns where a device is on the PCI bus, from the root complex over all bridges to
// itself, for its folder in sysfs: "pci0000:64", "0000:64:00.0", "0000:65:00.0". It is nil for one
// that is not there, or not on that bus.
func BusPath(folder string) []string {
	target, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil
	}
	parts := strings.Split(target, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") {
			return parts[i:]
		}
	}
	return nil
}

// OnBus returns where the device with an address of the PCI bus is ("0000:65:00.0"), and the node
// of memory that it is near to, -1 if that is not known.
func OnBus(root, address string) (path []string, node int) {
	folder := filepath.Join(root, "sys/bus/pci/devices", address)
	text, _ := os.ReadFile(filepath.Join(folder, "numa_node"))
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 {
		node = -1
	}
	return BusPath(folder), node
}
