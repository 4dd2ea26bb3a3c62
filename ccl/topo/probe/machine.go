package probe

import (
	"bytes"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/park"
)

// Machine reads processors, caches, NUMA nodes and page sizes from the /proc and /sys below root
// ("/" for the real ones). Fields that cannot be read stay empty.
func Machine(root string) *topo.Machine {
	m := &topo.Machine{Processors: processorsOf(root)}
	if quota, file := park.Quota(root); !math.IsInf(quota, 1) {
		m.Quota, m.QuotaFile = quota, file
	}
	m.Limit, m.LimitFile = memoryLimit(root)
	m.Shared = capacity(path.Join(root, "dev/shm"))
	m.Nodes = nodes(root)
	m.Caches = caches(root, m.Processors)
	m.Pages = pages(root)
	return m
}

// memoryLimit returns how much memory the control groups of this process grant it, and the file
// with the limit; 0 without one.
func memoryLimit(root string) (bytes int64, file string) {
	for _, g := range park.ControlGroups(root, "memory") {
		name := "memory.max"
		if !g.Version2 {
			name = "memory.limit_in_bytes"
		}
		const none = 1 << 60 // version 1 has a number near 2^63 for no limit
		n, err := strconv.ParseInt(word(g.Folder, name), 10, 64)
		if err == nil && n > 0 && n < none && (file == "" || n < bytes) {
			bytes, file = n, path.Join(g.Folder, name)
		}
	}
	return bytes, file
}

// processorsOf reads which processors this process may run on. It reads the kernel's status file of
// the process, which a made-up tree can have too.
func processorsOf(root string) []int {
	for line := range bytes.Lines(read(root, "proc/self/status")) {
		if list, ok := bytes.CutPrefix(line, []byte("Cpus_allowed_list:")); ok {
			if all := numbers(string(list)); len(all) > 0 {
				return all
			}
		}
	}
	if all := numbers(string(read(root, "sys/devices/system/cpu/online"))); len(all) > 0 {
		return all
	}
	all := make([]int, runtime.NumCPU())
	for i := range all {
		all[i] = i
	}
	return all
}

func nodes(root string) []topo.Node {
	var all []topo.Node
	dirs, _ := filepath.Glob(path.Join(root, "sys/devices/system/node/node[0-9]*"))
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		n := topo.Node{ID: id, Processors: numbers(string(read(dir, "cpulist")))}
		if len(n.Processors) == 0 {
			continue // a node of memory only: CXL, or a GPU's
		}
		for line := range strings.Lines(string(read(dir, "meminfo"))) {
			// Node 0 MemTotal:       7940436 kB
			if f := strings.Fields(line); len(f) >= 4 && f[2] == "MemTotal:" {
				kib, _ := strconv.ParseInt(f[3], 10, 54)
				n.Bytes = kib << 10
			}
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b topo.Node) int { return a.ID - b.ID })
	return all
}

// caches reads the data caches of the processors. A cache is found at every processor that shares
// it, but listed once.
func caches(root string, processors []int) []topo.Cache {
	var all []topo.Cache
	seen := map[string]bool{}
	for _, cpu := range processors {
		dirs, _ := filepath.Glob(path.Join(root, "sys/devices/system/cpu/cpu"+strconv.Itoa(cpu), "cache/index[0-9]*"))
		for _, dir := range dirs {
			level, shared := word(dir, "level"), word(dir, "shared_cpu_list")
			if kind := word(dir, "type"); kind == "Instruction" || seen[level+":"+shared] {
				continue
			}
			seen[level+":"+shared] = true
			n, err := strconv.Atoi(level)
			size := cacheSize(word(dir, "size"))
			if err != nil || size == 0 {
				continue
			}
			all = append(all, topo.Cache{Level: n, Bytes: size, Processors: numbers(shared)})
		}
	}
	slices.SortStableFunc(all, func(a, b topo.Cache) int { return a.Level - b.Level })
	return all
}

// LastCache returns the last data cache before the memory, for the first processor that this
// process may use. It is zero if the system does not report caches. LastCache reads much less than
// Machine.
func LastCache(root string) topo.Cache {
	all := caches(root, processorsOf(root)[:1])
	if len(all) == 0 {
		return topo.Cache{}
	}
	return all[len(all)-1]
}

// cacheSize parses a size such as 48K, 1024K or 32M.
func cacheSize(text string) int64 {
	digits := strings.TrimRight(text, "KMG")
	n, err := strconv.ParseInt(digits, 10, 40)
	if err != nil || n < 0 {
		return 0
	}
	switch text[len(digits):] {
	case "K":
		n <<= 10
	case "M":
		n <<= 20
	case "G":
		n <<= 30
	}
	return n
}

func pages(root string) topo.Pages {
	const transparent = "sys/kernel/mm/transparent_hugepage"
	p := topo.Pages{
		Anonymous: chosen(word(root, transparent+"/enabled")),
		Shared:    chosen(word(root, transparent+"/shmem_enabled")),
	}
	p.Bytes, _ = strconv.ParseInt(word(root, transparent+"/hpage_pmd_size"), 10, 40)
	for line := range strings.Lines(string(read(root, "proc/meminfo"))) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "HugePages_Total:":
			p.Reserved = n
		case "HugePages_Free:":
			p.Free = n
		case "Hugepagesize:":
			if p.Bytes == 0 {
				p.Bytes = int64(n) << 10
			}
		}
	}
	return p
}

// chosen returns the word in brackets of a setting such as "always [madvise] never".
func chosen(setting string) string {
	_, rest, _ := strings.Cut(setting, "[")
	value, _, ok := strings.Cut(rest, "]")
	if !ok {
		return ""
	}
	return value
}

func read(root, name string) []byte {
	text, _ := os.ReadFile(path.Join(root, name))
	return text
}

func word(root, name string) string { return strings.TrimSpace(string(read(root, name))) }

// numbers parses a list of processors such as 0-3,8. It returns nil if text is no such list.
func numbers(text string) []int {
	set, err := park.ParseCPUs(text)
	if err != nil {
		return nil
	}
	var all []int
	for cpu := range len(set) * 64 {
		if set.Has(cpu) {
			all = append(all, cpu)
		}
	}
	return all
}

// list formats processors as in 0-3,8.
func list(processors []int) string {
	var set park.CPUSet
	for _, p := range processors {
		set = set.With(p)
	}
	return set.String()
}
