package probe

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/park"
)

func memory(m *topo.Machine) topo.Finding {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return topo.Finding{Name: "memory", State: topo.Info, Value: err.Error()}
	}
	unit := uint64(info.Unit)
	return topo.Finding{Name: "memory", State: topo.Info, Value: fmt.Sprintf("%d MiB, %d MiB free",
		uint64(info.Totalram)*unit>>20, uint64(info.Freeram)*unit>>20) + granted(m)}
}

// sharedMemory tries the kind of memory that the shm transport uses: a sealed memfd, mapped shared.
func sharedMemory() topo.Finding {
	found := topo.Finding{Name: "shared memory", State: topo.Missing,
		Hint: "ranks of one host will talk over TCP, many times slower"}
	fd, err := unix.MemfdCreate("goccl-probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		found.Value = "memfd_create: " + err.Error()
		return found
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		found.Value = "ftruncate: " + err.Error()
		return found
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		found.Value = "sealing: " + err.Error()
		return found
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		found.Value = "mmap: " + err.Error()
		return found
	}
	unix.Munmap(mem)
	return topo.Finding{Name: "shared memory", State: topo.OK, Value: "memfd with seals"}
}

// capacity returns how many bytes the file system of a folder may hold, 0 if there is none.
func capacity(folder string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(folder, &s) != nil {
		return 0
	}
	return int64(s.Blocks) * int64(s.Bsize)
}

// spareThreads returns how many threads a process may start without using up what limits them: Go
// ends a process that cannot start one.
func spareThreads(root string) int {
	const part, partOfUser = 4, 64 // how many others the user runs is not known
	spare := mostThreads
	var limit unix.Rlimit
	if os.Geteuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil && limit.Cur/partOfUser < mostThreads {
		spare = int(limit.Cur) / partOfUser
	}
	for _, g := range park.ControlGroups(root, "pids") {
		most, err1 := strconv.Atoi(word(g.Folder, "pids.max"))
		used, err2 := strconv.Atoi(word(g.Folder, "pids.current"))
		if err1 == nil && err2 == nil {
			spare = min(spare, max(most-used, 0)/part)
		}
	}
	return spare
}
