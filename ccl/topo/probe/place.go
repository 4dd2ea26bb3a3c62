package probe

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
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
	p := topo.Place{User: uint32(os.Geteuid())}
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
	return p, nil
}

// firstLink returns the hardware address of the first Ethernet or InfiniBand interface, "" if there
// is none.
func firstLink(root string) string {
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
