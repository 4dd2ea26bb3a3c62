package mem

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Available returns the number of bytes that the system could still give to this process without
// killing any process, as far as this can be read. The kernel fills a memfd until its out-of-memory
// killer acts, so a shortage must be detected before.
func Available() int64 {
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
			group = cgroup{"/sys/fs/cgroup/memory",
				"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
		} else if part[1] != "" {
			continue
		}
		// Each ancestor may have a limit. In a container the path may not exist; the container's
		// own limit is at the root.
		for dir := path.Clean("/" + part[2]); ; dir = path.Dir(dir) {
			least = min(least, group.left(dir))
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// cgroup names the files of one version of control groups, and a field of memory.stat.
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

// field finds a line "name value" in data and returns the value.
func field(data []byte, name string) (int64, bool) {
	for line := range bytes.Lines(data) {
		if !bytes.HasPrefix(line, []byte(name)) {
			continue // most lines: this is asked for each part of a segment
		}
		if words := bytes.Fields(line); len(words) >= 2 && string(words[0]) == name {
			n, err := strconv.ParseInt(string(words[1]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
