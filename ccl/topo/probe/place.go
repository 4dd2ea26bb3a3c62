package probe

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
)

// Types of interfaces, as the kernel numbers them (if_arp.h).
const ethernet, infiniband = "1", "32"

// Place returns where this process runs. With an error, the place has what is known all the same;
// its Machine then is the name of the host.
func Place(root string) (topo.Place, error) {
	p := topo.Place{User: outerUser(root, uint32(os.Geteuid()))}
	boot, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if p.Machine = strings.TrimSpace(string(boot)); err != nil {
		p.Machine, _ = os.Hostname()
		return p, fmt.Errorf("the boot id of the kernel cannot be read: %w", err)
	}
	namespace, err := os.Readlink(filepath.Join(root, "proc/self/ns/net"))
	if err != nil {
		return p, fmt.Errorf("the network namespace cannot be read: %w", err)
	}
	sum := sha256.Sum256([]byte(namespace + " " + firstLink(root)))
	p.Network = binary.LittleEndian.Uint64(sum[:])
	if namespace, err = os.Readlink(filepath.Join(root, "proc/self/ns/pid")); err == nil {
		sum = sha256.Sum256([]byte(namespace))
		p.Pids = binary.LittleEndian.Uint64(sum[:])
	}
	return p, nil
}

// outerUser returns the number by which the namespace around that of this process knows one of its
// users. Containers without root number their users anew, each from 0: the same number in two of
// them may be two users, and two numbers one.
func outerUser(root string, user uint32) uint32 {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/uid_map"))
	for line := range strings.Lines(string(text)) {
		var inside, outside, count uint32
		n, _ := fmt.Sscan(line, &inside, &outside, &count)
		if n == 3 && user >= inside && user-inside < count {
			return outside + user - inside
		}
	}
	return user
}

// firstLink returns the hardware address of the first Ethernet or InfiniBand interface, "" if there
// is none. The kernel says which interfaces are in the namespace of this process. /sys has those of
// whoever has mounted it, or none, so it only serves where netlink is refused, and tests.
func firstLink(root string) string {
	if root == "/" {
		if all, err := net.Interfaces(); err == nil {
			return firstOf(all)
		}
	}
	folders, _ := filepath.Glob(filepath.Join(root, "sys/class/net/*"))
	first, index := "", math.MaxInt
	for _, folder := range folders {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(folder, name))
			return strings.TrimSpace(string(text))
		}
		i, err := strconv.Atoi(read("ifindex"))
		if kind := read("type"); err != nil || i >= index || kind != ethernet && kind != infiniband {
			continue
		}
		if address := read("address"); strings.Trim(address, "0:") != "" {
			first, index = address, i
		}
	}
	return first
}

// The lengths of hardware addresses.
const ethernetBytes, infinibandBytes = 6, 20

func firstOf(all []net.Interface) string {
	first, index := "", math.MaxInt
	for _, i := range all {
		n := len(i.HardwareAddr)
		if i.Index < index && (n == ethernetBytes || n == infinibandBytes) {
			first, index = i.HardwareAddr.String(), i.Index
		}
	}
	return first
}
