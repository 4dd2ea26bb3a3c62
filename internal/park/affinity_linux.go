package park

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Affinity returns the set of processors that the main thread of this process may run on. It is
// empty if the set cannot be determined.
func Affinity() CPUSet {
	s := make(CPUSet, maxCPU/64)
	n, ok := affinity(unix.SYS_SCHED_GETAFFINITY, unix.Getpid(), s)
	if !ok {
		return nil
	}
	return s[:(n+7)/8]
}

// OnOneCore calls f, which starts processes: they may run on one of this thread's processors only.
func OnOneCore(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, one := make(CPUSet, maxCPU/64), make(CPUSet, maxCPU/64)
	n, ok := affinity(unix.SYS_SCHED_GETAFFINITY, 0, all)
	words := (n + 7) / 8
	for cpu := range words * 64 {
		if ok && all.Has(cpu) {
			one[cpu/64] |= 1 << (cpu % 64)
			break
		}
	}
	if _, ok := affinity(unix.SYS_SCHED_SETAFFINITY, 0, one[:words]); !ok {
		return errors.New("the system does not let processes be bound to a core")
	}
	defer affinity(unix.SYS_SCHED_SETAFFINITY, 0, all[:words])
	return f()
}

// affinity gets or sets the processors that a thread may run on; thread 0 is the calling one. It
// does not use unix.SchedGetaffinity, whose set ends at 1024 processors: the kernel refuses a set
// smaller than its own.
func affinity(call uintptr, thread int, set CPUSet) (bytes int, ok bool) {
	n, _, errno := unix.RawSyscall(call, uintptr(thread), uintptr(len(set)*8), uintptr(unsafe.Pointer(&set[0])))
	return int(n), errno == 0
}
