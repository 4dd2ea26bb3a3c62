package park

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Affinity is the set of processors that the main thread of this process may run on; empty if that
// cannot be found out.
func Affinity() CPUSet {
	s := make(CPUSet, maxCPU/64)
	n, ok := affinity(unix.SYS_SCHED_GETAFFINITY, unix.Getpid(), s)
	if !ok {
		return nil
	}
	return s[:(n+7)/8]
}

// affinity gets or sets where a thread may run, 0 is the calling one. Not unix.SchedGetaffinity,
// whose set ends at 1024 processors: the kernel refuses one smaller than its own.
func affinity(call uintptr, thread int, set CPUSet) (bytes int, ok bool) {
	n, _, errno := unix.RawSyscall(call, uintptr(thread), uintptr(len(set)*8), uintptr(unsafe.Pointer(&set[0])))
	return int(n), errno == 0
}
