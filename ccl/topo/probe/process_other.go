//go:build !linux

package probe

import (
	"errors"
	"syscall"
)

// HasEnded reports whether it is certain that no process has the number any more.
func HasEnded(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// IsStopped reports whether a process is stopped, where that can be told.
func IsStopped(int) bool { return false }
