package park

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The futex is not private: the word may be shared with other processes.
const (
	futexWait = 0
	futexWake = 1
)

// Wait sleeps while *word == val, for at most d (for ever if negative). It may return early;
// callers check again.
func Wait(word *atomic.Uint32, val uint32, d time.Duration) {
	var ts *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		ts = &t
	}
	// Syscall, not RawSyscall: the thread must release its P while it sleeps.
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(val),
		uintptr(unsafe.Pointer(ts)), 0, 0)
}

// Wake wakes up to n threads that wait on word.
func Wake(word *atomic.Uint32, n int) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, uintptr(n), 0, 0, 0)
}

func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
