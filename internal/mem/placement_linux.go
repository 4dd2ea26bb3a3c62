package mem

import (
	"fmt"
	"os"
	"path"
	"unsafe"

	"golang.org/x/sys/unix"
)

// placement is the wanted place of the pages of a new segment. The kernel may ignore it; a segment
// works either way.
type placement struct {
	way  HugeWay
	node int // -1 for no preference
}

// placementOf returns the placement of a segment, by the results of this process's probes.
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
		// The advice applies to pages that this mapping faults in, not to pages that fallocate
		// creates.
		unix.Madvise(whole, unix.MADV_HUGEPAGE)
		again(func() error { return unix.Madvise(whole, unix.MADV_POPULATE_WRITE) })
	}
}

// after is called once all pages exist.
func (at placement) after(memory []byte) {
	if whole := wholePages(memory); at.way == Collapsed && len(whole) > 0 {
		again(func() error { return unix.Madvise(whole, unix.MADV_COLLAPSE) })
	}
}

// wholePages returns the part of memory that is whole huge pages.
func wholePages(memory []byte) []byte { return memory[:len(memory)&^(hugeBytes-1)] }

// tryHugePage makes a segment of one huge page as NewSegment would, and reads from the kernel how
// many of its bytes are in huge pages.
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

// tryReserved allocates one of the pages that an administrator has reserved for hugetlbfs.
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

// tryNode asks for memory of a node as segments do, and checks on which node it is then.
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
