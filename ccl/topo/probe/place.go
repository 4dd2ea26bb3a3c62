package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
)

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
	if err == nil {
		_, err = fmt.Sscanf(namespace, "net:[%d]", &p.Network)
	}
	if err != nil {
		return p, fmt.Errorf("the network namespace cannot be read: %w", err)
	}
	return p, nil
}
