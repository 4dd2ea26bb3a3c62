package topo

// Machine describes the processors and the memory that the ranks of one host share.
type Machine struct {
	Processors []int   // processors that this process may run on
	Quota      float64 // processor time that control groups grant the process, in cores; 0 for no limit
	QuotaFile  string  // file with that limit
	Limit      int64   // bytes of memory that control groups grant it; 0 for no limit
	LimitFile  string  // file with that limit
	Shared     int64   // bytes that /dev/shm may hold; 0 where there is none
	Nodes      []Node  // NUMA nodes with processors; none if the system does not report them
	Caches     []Cache // data caches by level, each listed once
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
	Processors []int // processors that share it
}

// Pages holds the kernel's settings of page sizes, in its own words; "" where it has no such
// setting.
type Pages struct {
	Anonymous string // transparent huge pages for private memory: always, madvise, never
	Shared    string // for shared memory: always, within_size, advise, never, deny, force
	Bytes     int64  // size of a huge page
	Reserved  int    // huge pages set aside for hugetlbfs
	Free      int    // reserved huge pages that are free
}

// Cache returns the smallest cache of a level: the size that every processor can count on, and the
// processors that share it. It is zero if there is none.
func (m *Machine) Cache(level int) Cache {
	var least Cache
	for _, c := range m.Caches {
		if c.Level == level && (least.Bytes == 0 || c.Bytes < least.Bytes) {
			least = c
		}
	}
	return least
}

// Home returns the NUMA nodes that this process may run on.
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
