package mem

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// available is how many bytes the system could still give to this process without killing anybody,
// as far as it can be read: the kernel fills a memfd until its out-of-memory killer comes, so a
// shortage must be found before.
func available() int64 {
	least := int64(math.MaxInt64)
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		if kb, ok := field(data, "MemAvailable:"); ok {
			least = kb << 10
		}
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		group := cgroup{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
		if part[1] == "memory" { // version 1
			group = cgroup{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
		} else if part[1] != "" {
			continue
		}
		// Each ancestor may have a limit. In a container the path may not exist; its own limit lies
		// at the root.
		for dir := path.Clean("/" + part[2]); ; dir = path.Dir(dir) {
			least = min(least, group.left(dir))
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// cgroup is where one version of the control groups keeps its numbers.
type cgroup struct{ root, limit, usage, reclaimable string }

func (c cgroup) left(dir string) int64 {
	limit, ok1 := number(path.Join(c.root, dir, c.limit))
	usage, ok2 := number(path.Join(c.root, dir, c.usage))
	if !ok1 || !ok2 {
		return math.MaxInt64
	}
	left := limit - usage
	if data, err := os.ReadFile(path.Join(c.root, dir, "memory.stat")); err == nil {
		if cache, ok := field(data, c.reclaimable); ok {
			left += min(cache, usage)
		}
	}
	return max(left, 0)
}

// field finds "name value" in the lines of data.
func field(data []byte, name string) (int64, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
