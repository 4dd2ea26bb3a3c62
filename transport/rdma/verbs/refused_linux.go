//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// refused is the error of a call that the system refused.
func refused(errno syscall.Errno, format string, args ...any) error {
	text := "rdma: " + fmt.Sprintf(format, args...)
	if errno == syscall.ENOMEM {
		text += lockLimit()
	}
	return fault.Wrap(fault.System, errno, "%s", text)
}

// unopened is the error of an adapter that cannot be opened.
func unopened(errno syscall.Errno, name string) error {
	return refused(errno, "adapter %s cannot be opened (/dev/infiniband must be there and allow it; for a container: "+
		"--device /dev/infiniband)", name)
}

// lockLimit says how much memory may be locked, which what an adapter reads and writes has to be.
func lockLimit() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return ""
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return " (RLIMIT_MEMLOCK is unlimited)"
	}
	return fmt.Sprintf(" (RLIMIT_MEMLOCK is %d KiB: ulimit -l unlimited, or --ulimit memlock=-1 for a container)",
		limit.Cur>>10)
}

func errClosed(what string) error {
	return fault.New(fault.Closed, "rdma: the %s was closed before", what)
}
