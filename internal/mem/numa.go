package mem

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccl/goccl/internal/park"
)

// Home is the NUMA node on which a process wants its segments: the node of its processors.
type Home struct {
	Nodes int    // number of nodes of the machine that have memory
	Node  int    // -1: the kernel's choice, which is the node of the processor that touches a page first
	Why   string // the reason, where Node is -1
}

// ProbeHome reads the nodes, and the processors and memory that this process may use, from the /sys
// and /proc below root ("/" for the real ones). It then tries whether the kernel places memory on
// the node that it has found.
func ProbeHome(root string) Home { return probeHome(root, tryNode) }

func probeHome(root string, try func(node int) error) Home {
	h := Home{Node: -1}
	processors, memory := allowed(root)
	var near []int // nodes that have processors of this process
	withMemory := map[int]bool{}
	dirs, _ := filepath.Glob(path.Join(root, "sys/devices/system/node/node[0-9]*"))
	for _, dir := range dirs {
		node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		if hasMemory(dir) {
			withMemory[node] = true
		}
		text, _ := os.ReadFile(path.Join(dir, "cpulist"))
		own, _ := park.ParseCPUs(string(text))
		for i := range min(len(own), len(processors)) {
			if own[i]&processors[i] != 0 {
				near = append(near, node)
				break
			}
		}
	}
	slices.Sort(near)
	h.Nodes = len(withMemory)
	switch {
	case len(dirs) == 0:
		h.Why = "the system tells of no NUMA nodes"
	case h.Nodes < 2:
		h.Why = "all memory is on one node"
	case len(near) == 0:
		h.Why = "the processors of this process belong to no node"
	case len(near) > 1:
		h.Why = fmt.Sprintf("this process may run on nodes %v, and none is near to all of its processors", near)
	case !withMemory[near[0]]:
		h.Why = fmt.Sprintf("node %d, on which this process runs, has no memory", near[0])
	case memory != nil && !memory.Has(near[0]):
		h.Why = fmt.Sprintf("this process runs on node %d, and its control group forbids it that memory", near[0])
	default:
		if err := try(near[0]); err != nil {
			h.Why = fmt.Sprintf("memory of node %d cannot be asked for: %v", near[0], err)
			break
		}
		h.Node = near[0]
	}
	return h
}

// allowed returns the processors and the memory nodes that this process may use, nil where these
// cannot be read.
func allowed(root string) (processors, memory park.CPUSet) {
	text, _ := os.ReadFile(path.Join(root, "proc/self/status"))
	for line := range bytes.Lines(text) {
		name, list, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "Cpus_allowed_list":
			processors, _ = park.ParseCPUs(string(list))
		case "Mems_allowed_list":
			memory, _ = park.ParseCPUs(string(list))
		}
	}
	return processors, memory
}

// hasMemory reports whether a node has memory, by the file meminfo in its folder. The lines of that
// file are such as "Node 0 MemTotal: 7940436 kB".
func hasMemory(dir string) bool {
	text, _ := os.ReadFile(path.Join(dir, "meminfo"))
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) >= 4 && string(f[2]) == "MemTotal:" {
			return string(f[3]) != "0"
		}
	}
	return false
}

// home is the probe of this process, done when the first segment is made.
var home = sync.OnceValue(func() Home { return ProbeHome("/") })
