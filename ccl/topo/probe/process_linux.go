package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/topo"
)

// startField is the index of starttime in /proc/PID/stat (proc(5) counts from 1), behind the name
// of the program, which may contain anything.
const startField = 22 - 3

const ticksEach = 10 * time.Millisecond // the kernel's unit for user space, on all architectures here

// Process returns what tells this process apart from all others, and when it began; the zero time
// if that is unknown.
func Process() (p topo.Process, began time.Time) {
	p.Host, _ = os.Hostname()
	p.Pid = os.Getpid()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, failed := os.Readlink("/proc/self/ns/pid")
	self, known := stat("self")
	if err != nil || failed != nil || !known {
		return p, began
	}
	p.Machine, p.Start = strings.TrimSpace(string(boot))+" "+namespace, self.Start
	var since unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) == nil {
		began = time.Now().Add(time.Duration(self.Start)*ticksEach - time.Duration(since.Nano()))
	}
	return p, began
}

// Gone reports whether a process is known to have ended. It knows those whose numbers mean the same
// as here, which self tells.
func Gone(self, p topo.Process) bool {
	if p.Machine == "" || p.Machine != self.Machine || p.Pid <= 0 {
		return false
	}
	if HasEnded(p.Pid) {
		return true
	}
	s, known := statOf(p.Pid)
	return known && (s.Start != p.Start || s.State == "Z" || s.State == "X")
}

// HasEnded reports whether it is certain that no process of this PID namespace has the number any
// more, or that it is over and only waits for its parent.
func HasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // an old kernel or a filter may refuse it
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// IsStopped reports whether a process of this PID namespace is stopped by a signal or a debugger.
func IsStopped(pid int) bool {
	s, known := statOf(pid)
	return known && strings.EqualFold(s.State, "t")
}

// statOf is ReadStat for a process of this PID namespace. Where /proc is of another one, as in a
// namespace that was made without a /proc of its own, the same number there is another process.
func statOf(pid int) (s Stat, known bool) {
	if here, err := os.Readlink("/proc/self"); err != nil || here != strconv.Itoa(os.Getpid()) {
		return s, false
	}
	return ReadStat(pid)
}

// Stat is what /proc says of a process.
type Stat struct {
	State  string // "R", "S", "Z" …
	Parent int
	Start  uint64 // when it was started, in ticks of 10 ms since the machine was
}

// ReadStat returns what /proc says of a process, if that can be read.
func ReadStat(pid int) (Stat, bool) { return stat(strconv.Itoa(pid)) }

func stat(pid string) (s Stat, known bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= startField {
		return s, false
	}
	s.State = fields[0]
	if s.Parent, err = strconv.Atoi(fields[1]); err == nil {
		s.Start, err = strconv.ParseUint(fields[startField], 10, 64)
	}
	return s, err == nil
}
