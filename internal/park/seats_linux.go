package park

import (
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// online returns the cores of the host, or none if they are not known.
var online = sync.OnceValue(func() (cores []int) {
	list, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil
	}
	set, _ := ParseCPUs(string(list))
	for cpu := range len(set) * 64 {
		if set.Has(cpu) {
			cores = append(cores, cpu)
		}
	}
	return cores
})

func here() int {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return -1
	}
	return int(cpu)
}

// move moves the calling thread to another core, and reports whether it has moved. A thread that is
// bound to some cores stays: it cannot be told whether the thread itself or its control group bound
// it, and that binding could not be restored.
func move(core int) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed [maxCPU / 64]uint64
	n, ok := affinity(unix.SYS_SCHED_GETAFFINITY, 0, allowed[:])
	if !ok || CPUSet(allowed[:]).Count() < len(online()) {
		return false
	}
	var one, all [maxCPU / 64]uint64
	one[core/64] = 1 << (core % 64)
	for i := range all {
		all[i] = ^uint64(0)
	}
	words := max(1, n/8)
	_, ok = affinity(unix.SYS_SCHED_SETAFFINITY, 0, one[:words])
	if ok {
		affinity(unix.SYS_SCHED_SETAFFINITY, 0, all[:words])
	}
	return ok
}
