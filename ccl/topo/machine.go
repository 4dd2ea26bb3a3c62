package topo

// Machine is the processors and the memory that the ranks of one host share.
type Machine struct {
	Processors []int   // that this process may run on
	Quota      float64 // cores' worth of time that control groups grant it; 0 for no limit
	QuotaFile  string  // which of them says so
	Nodes      []Node  // NUMA nodes with processors; at least one where the system tells
	Caches     []Cache // of data, by level; those of one level are distinct
	Pages      Pages
}

// Node is a NUMA node: processors, and the memory that is near them.
type Node struct {
	ID         int
	Processors []int
	Bytes      int64
}

// Cache is one cache of data.
type Cache struct {
	Level      int
	Bytes      int64
	Processors []int // that share it
}

// Pages are the settings of the memory's page sizes, in the kernel's words; "" where it has none.
type Pages struct {
	Anonymous string // transparent huge pages for private memory: always, madvise, never
	Shared    string // for shared memory: always, within_size, advise, never, deny, force
	Bytes     int64  // of a huge page
	Reserved  int    // huge pages set aside for hugetlbfs
	Free      int    // of those
}

// Cache gives the smallest cache of a level: what every processor can count on, and how many share
// it. Zero if there is none.
func (m *Machine) Cache(level int) Cache {
	var least Cache
	for _, c := range m.Caches {
		if c.Level == level && (least.Bytes == 0 || c.Bytes < least.Bytes) {
			least = c
		}
	}
	return least
}

// Home is the NUMA nodes that this process may run on.
func (m *Machine) Home() []Node {
	mine := map[int]bool{}
	for _, p := range m.Processors {
		mine[p] = true
	}
	var home []Node
	for _, n := range m.Nodes {
		for _, p := range n.Processors {
			if mine[p] {
				home = append(home, n)
				break
			}
		}
	}
	return home
}
