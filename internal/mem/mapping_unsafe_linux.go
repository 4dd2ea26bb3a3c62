package mem

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapShared maps a segment. A segment that may have huge pages begins at a multiple of their size,
// since they cannot be mapped elsewhere.
func mapShared(fd, bytes, protection, populate int) ([]byte, error) {
	size, flags := uintptr(bytes), unix.MAP_SHARED|populate
	if bytes < hugeBytes {
		at, err := unix.MmapPtr(fd, 0, nil, size, protection, flags)
		if err != nil {
			return nil, err
		}
		return unsafe.Slice((*byte)(at), bytes), nil
	}
	page := uintptr(os.Getpagesize())
	size = (size + page - 1) &^ (page - 1)
	room, err := unix.MmapPtr(-1, 0, nil, size+hugeBytes, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	before := -uintptr(room) & (hugeBytes - 1)
	at := unsafe.Add(room, before)
	if _, err := unix.MmapPtr(fd, 0, at, size, protection, flags|unix.MAP_FIXED); err != nil {
		unix.MunmapPtr(room, size+hugeBytes)
		return nil, err
	}
	if before > 0 {
		unix.MunmapPtr(room, before)
	}
	if after := hugeBytes - before; after > 0 {
		unix.MunmapPtr(unsafe.Add(at, size), after)
	}
	return unsafe.Slice((*byte)(at), bytes), nil
}

// populate fills the page tables of a writable mapping whose pages exist, so that their first use
// causes no page faults.
func populate(fd, offset int, memory []byte) error {
	if again(func() error { return unix.Madvise(memory, unix.MADV_POPULATE_WRITE) }) == nil {
		return nil
	}
	// Kernels before 5.14 can populate only while they map.
	_, err := unix.MmapPtr(fd, int64(offset), unsafe.Pointer(&memory[0]), uintptr(len(memory)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE)
	return err
}

func unmapShared(memory []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(&memory[0]), uintptr(len(memory)))
}

// prefer asks for pages of a NUMA node. The kernel takes pages of other nodes if that node has none
// left, so a shortage on the node is never an error.
func prefer(memory []byte, node int) error {
	mask := make([]uint64, node/64+1)
	mask[node/64] = 1 << (node % 64)
	// The kernel uses one bit less than the length it is given.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)),
		unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*64+1), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// nodeOf returns the NUMA node of the first page of memory.
func nodeOf(memory []byte) (int, error) {
	var node int32
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&node)), 0, 0,
		uintptr(unsafe.Pointer(&memory[0])), unix.MPOL_F_NODE|unix.MPOL_F_ADDR, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(node), nil
}
