package tcp

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// linkRate returns the rate of an interface in Mbit/s, or 0 if it is unknown. What interfaces
// without a device of their own (veth, tun, bridges) report means nothing.
func linkRate(name string) uint32 {
	folder := filepath.Join("/sys/class/net", name)
	if _, err := os.Stat(filepath.Join(folder, "device")); err != nil {
		return 0
	}
	text, _ := os.ReadFile(filepath.Join(folder, "speed"))
	rate, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || rate < 0 {
		return 0
	}
	return uint32(rate)
}
