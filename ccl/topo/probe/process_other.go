//go:build !linux

package probe

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/topo"
)

// Process returns what tells this process apart from all others, and when it began; the zero time
// if that is unknown.
func Process() (p topo.Process, began time.Time) {
	p.Host, _ = os.Hostname()
	p.Pid = os.Getpid()
	return p, began
}

// Gone reports whether a process is known to have ended.
func Gone(_, _ topo.Process) bool { return false }

// HasEnded reports whether it is certain that no process has the number any more.
func HasEnded(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// IsStopped reports whether a process is stopped, where that can be told.
func IsStopped(int) bool { return false }
