package mem

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoNodes returns the files of a machine with two nodes of four processors each, for a process
// that may use the given processors and memory nodes.
func twoNodes(processors, memory string) map[string]string {
	return map[string]string{
		"proc/self/status": "Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t" + processors +
			"\nMems_allowed_list:\t" + memory + "\n",
		"sys/devices/system/node/node0/cpulist":    "0-3\n",
		"sys/devices/system/node/node0/meminfo":    "Node 0 MemTotal:       67108864 kB\nNode 0 MemFree:  1 kB\n",
		"sys/devices/system/node/node1/cpulist":    "4-7\n",
		"sys/devices/system/node/node1/meminfo":    "Node 1 MemTotal:       67108864 kB\n",
		"sys/devices/system/node/nodes_of_nothing": "x",
	}
}

func with(content map[string]string, name, text string) map[string]string {
	content[name] = text
	return content
}

func without(content map[string]string, name string) map[string]string {
	delete(content, name)
	return content
}

func TestProbeHome(t *testing.T) {
	const cpus1, memory1 = "sys/devices/system/node/node1/cpulist", "sys/devices/system/node/node1/meminfo"
	for _, c := range []struct {
		name    string
		content map[string]string
		refusal error
		want    Home
		asked   int // node that was tried, -1 for none
	}{
		{"inside node 0", twoNodes("0-1", "0-1"), nil, Home{2, 0, ""}, 0},
		{"inside node 1", twoNodes("5", "0-1"), nil, Home{2, 1, ""}, 1},
		{"all of node 1", twoNodes("4-7", "1"), nil, Home{2, 1, ""}, 1},
		{"across both", twoNodes("3-4", "0-1"), nil,
			Home{2, -1, "this process may run on nodes [0 1], and none is near to all of its processors"}, -1},
		{"on a node without memory", with(twoNodes("4-7", "0"), memory1, "Node 1 MemTotal:       0 kB\n"), nil,
			Home{1, -1, "all memory is on one node"}, -1},
		{"on a node without memory, of three",
			with(with(with(twoNodes("4-7", "0,2"), memory1, "Node 1 MemTotal: 0 kB\n"),
				"sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 5 kB\n"),
				"sys/devices/system/node/node2/cpulist", "8-9\n"), nil,
			Home{2, -1, "node 1, on which this process runs, has no memory"}, -1},
		{"beside memory without processors", with(twoNodes("0-3", "0-1"), cpus1, "\n"), nil, Home{2, 0, ""}, 0},
		{"memory forbidden by a control group", twoNodes("4-7", "0"), nil,
			Home{2, -1, "this process runs on node 1, and its control group forbids it that memory"}, -1},
		{"mbind forbidden", twoNodes("4-7", "0-1"), errors.New("mbind: operation not permitted"),
			Home{2, -1, "memory of node 1 cannot be asked for: mbind: operation not permitted"}, 1},
		{"one node", without(without(twoNodes("0-3", "0"), cpus1), memory1), nil,
			Home{1, -1, "all memory is on one node"}, -1},
		{"no affinity", without(twoNodes("", ""), "proc/self/status"), nil,
			Home{2, -1, "the processors of this process belong to no node"}, -1},
		{"affinity that is nonsense", twoNodes("x", ""), nil,
			Home{2, -1, "the processors of this process belong to no node"}, -1},
		{"no sysfs", map[string]string{"proc/self/status": "Cpus_allowed_list:\t0-3\n"}, nil,
			Home{0, -1, "the system tells of no NUMA nodes"}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := -1
			got := probeHome(files(t, c.content), func(node int) error {
				asked = node
				return c.refusal
			})
			require.Equal(t, c.want, got)
			require.Equal(t, c.asked, asked)
		})
	}
}
