//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// read returns a line that the kernel says of an adapter, "" if it says nothing.
func (l *library) read(device string, path ...string) string {
	text, err := os.ReadFile(filepath.Join(append([]string{l.sysfs, device}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// nodeOf returns the node of memory that an adapter is near to, -1 if it is not known.
func (l *library) nodeOf(device string) int {
	node, err := strconv.Atoi(l.read(device, "device", "numa_node"))
	if err != nil || node < 0 {
		return -1
	}
	return node
}

var busAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// busOf returns an adapter's place on the PCI bus, "" if it has none.
func (l *library) busOf(device string) string {
	target, err := os.Readlink(filepath.Join(l.sysfs, device, "device"))
	if err != nil || !busAddress.MatchString(filepath.Base(target)) {
		return ""
	}
	return filepath.Base(target)
}

// rateOf returns the rate of a port in Mbit/s, 0 if it is not known. The kernel knows rates that
// are newer than libibverbs.
func (l *library) rateOf(device string, port int) int {
	number, _, ok := strings.Cut(l.read(device, "ports", strconv.Itoa(port), "rate"), " Gb/sec")
	rate, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || rate < 0 || rate > 1e6 {
		return 0
	}
	return int(rate * 1000)
}

// gidOf returns what a GID is for. Kernels that do not say it know RoCE v1 only.
func (l *library) gidOf(device string, port, index int, ethernet bool) (GIDKind, string) {
	attributes := []string{"ports", strconv.Itoa(port), "gid_attrs"}
	of := l.read(device, append(attributes, "ndevs", strconv.Itoa(index))...)
	switch {
	case !ethernet:
		return InfiniBand, of
	case l.read(device, append(attributes, "types", strconv.Itoa(index))...) == "RoCE v2":
		return RoCEv2, of
	default:
		return RoCEv1, of
	}
}
