package mem

import (
	"fmt"
	"os"
	"path"
	"unsafe"

	"golang.org/x/sys/unix"
)

// placement is where the pages of a new segment should lie. The kernel does it or does not; a
// segment works either way.
type placement struct {
	way  HugeWay
	node int // -1 for no wish
}

// placementOf is what the probes of this process have found.
func placementOf(bytes int) placement {
	at := placement{node: home().Node}
	if bytes >= hugeBytes {
		at.way = hugePages().Way
	}
	return at
}

// before is called with the mapping of a segment that has no pages yet.
func (at placement) before(memory []byte) {
	if at.node >= 0 {
		prefer(memory, at.node)
	}
	if whole := wholePages(memory); at.way == Advised && len(whole) > 0 {
		// The advice counts for pages that this mapping faults in, not for those that fallocate
		// makes.
		unix.Madvise(whole, unix.MADV_HUGEPAGE)
		again(func() error { return unix.Madvise(whole, unix.MADV_POPULATE_WRITE) })
	}
}

// after is called once all pages are there.
func (at placement) after(memory []byte) {
	if whole := wholePages(memory); at.way == Collapsed && len(whole) > 0 {
		again(func() error { return unix.Madvise(whole, unix.MADV_COLLAPSE) })
	}
}

// wholePages is the huge pages that fit into memory.
func wholePages(memory []byte) []byte { return memory[:len(memory)&^(hugeBytes-1)] }

// tryHugePage makes a segment of one huge page as NewSegment would, and asks the kernel what it is
// made of.
func tryHugePage(root string, way HugeWay) (huge int, err error) {
	s, err := newSegment("goccl-probe", hugeBytes, placement{way, -1})
	if err != nil {
		return 0, err
	}
	defer s.Free()
	smaps, err := os.Open(path.Join(root, "proc/self/smaps"))
	if err != nil {
		return 0, fmt.Errorf("what pages it got cannot be read: %w", err)
	}
	defer smaps.Close()
	start := uint64(uintptr(unsafe.Pointer(&s.memory[0])))
	return hugeIn(smaps, start, start+hugeBytes), nil
}

// tryReserved allocates one page of those that an administrator has set aside for hugetlbfs.
func tryReserved() error {
	fd, err := unix.MemfdCreate("goccl-probe", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, hugeBytes); err != nil {
		return err
	}
	return again(func() error { return unix.Fallocate(fd, 0, 0, hugeBytes) })
}

// tryNode asks for memory of a node as segments do, and where it lies then.
func tryNode(node int) error {
	fresh, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer unix.Munmap(fresh)
	if err := prefer(fresh, node); err != nil {
		return fmt.Errorf("mbind: %w", err)
	}
	fresh[0] = 1
	got, err := nodeOf(fresh)
	if err == nil && got != node {
		err = fmt.Errorf("the kernel chose node %d", got)
	}
	return err
}
