package park

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Affinity is the set of processors that the main thread of this process may run on; empty if that cannot be found out.
func Affinity() CPUSet {
	s := make(CPUSet, maxCPU/64)
	// Not unix.SchedGetaffinity, whose set ends at 1024 processors: the kernel refuses one smaller than its own.
	n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, uintptr(unix.Getpid()), uintptr(len(s)*8), uintptr(unsafe.Pointer(&s[0])))
	if errno != 0 {
		return nil
	}
	return s[:(int(n)+7)/8]
}
