package shm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endSpan is how long the end of a process is waited for after the end of its connection, so that
// the message can say how it ended: a process that dies closes its descriptors first.
const endSpan = 100 * time.Millisecond

// life is a descriptor of a peer process (pidfd). It tells that the process has ended, and how. The
// connection does not: a forked child of the process may keep it open. All methods work on nil, as
// if nothing were known: older kernels, and some sandboxes, have no such descriptors.
type life struct {
	pid  int
	file *os.File // in Go's poller, so that waiting costs no thread
	raw  syscall.RawConn
	over chan struct{} // closed by wait when the process has ended
}

// newLife returns the life of the process at the other end of a connection. It must come before
// this side's hello: who answers that lives, so it is no later process with the same number.
func newLife(conn *net.UnixConn, pid int) *life {
	fd, err := peerPidfd(conn)
	if errors.Is(err, unix.ENOPROTOOPT) { // before Linux 6.5
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return nil
	}
	return lifeOf(fd, pid)
}

// lifeOf makes a life of a pidfd, which then belongs to it.
func lifeOf(fd, pid int) *life {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil
	}
	return &life{pid: pid, file: file, raw: raw, over: make(chan struct{})}
}

// peerPidfd returns a pidfd of the process at the other end of a connection.
func peerPidfd(conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(socket uintptr) {
		fd, failed = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	return fd, errors.Join(err, failed)
}

// close gives the descriptor back and ends wait.
func (l *life) close() {
	if l != nil {
		l.file.Close()
	}
}

// wait returns true when the process has ended, or false after close.
func (l *life) wait() bool {
	if l == nil || l.raw.Read(ended) != nil {
		return false
	}
	close(l.over)
	return true
}

// ended reports whether the process of a pidfd has ended.
func ended(fd uintptr) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// isOver reports whether the process is known to have ended.
func (l *life) isOver() (over bool) {
	if l != nil {
		l.raw.Control(func(fd uintptr) { over = ended(fd) })
	}
	return over
}

// story says what has become of a process whose connection is of no use any more. If broken, it is
// the connection that has ended, and the process probably ends now: its end is waited for a moment,
// or until hurry is closed.
func (l *life) story(broken bool, hurry <-chan struct{}) string {
	if l == nil {
		return "has ended or broken its connection"
	}
	if broken {
		late := time.NewTimer(endSpan)
		defer late.Stop()
		select {
		case <-l.over:
		case <-late.C:
		case <-hurry:
		}
	}
	if !l.isOver() {
		return "has broken its connection, but is alive"
	}
	switch status, known := l.status(); {
	case !known:
		return "has ended; how is not seen from here: it may have exited, or been killed"
	case status.Signaled():
		text := fmt.Sprintf("was killed by signal %d", status.Signal())
		if name := unix.SignalName(status.Signal()); name != "" {
			text += " (" + name + ")"
		}
		return text
	default:
		return fmt.Sprintf("has exited with status %d", status.ExitStatus())
	}
}

// status returns how a process that has ended did so, in the form of wait(2), if the kernel tells.
func (l *life) status() (status unix.WaitStatus, known bool) {
	l.raw.Control(func(fd uintptr) {
		for range 2 { // its parent may take it away between the two looks
			if status, known = reapedStatus(int(fd)); known {
				return
			}
			if status, known = zombieStatus(int(fd), l.pid); known {
				return
			}
		}
	})
	return status, known
}

// reapedStatus knows the status of processes that their parents have waited for (Linux 6.15).
func reapedStatus(fd int) (status unix.WaitStatus, known bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := unix.IoctlPidfdInfo(fd, &info)
	return unix.WaitStatus(info.Exit_code), err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

// exitField is the index of exit_code in /proc/PID/stat (proc(5) counts from 1), behind the name of
// the program, which may contain anything.
const exitField = 52 - 3

// zombieStatus knows the status of processes that nobody has waited for yet. The number still
// belongs to the process if it takes signals afterwards.
func zombieStatus(fd, pid int) (status unix.WaitStatus, known bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || unix.PidfdSendSignal(fd, 0, nil, 0) != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= exitField || fields[0] != "Z" {
		return 0, false
	}
	_, err = fmt.Sscan(fields[exitField], &status)
	return status, err == nil
}
