package tcp

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type scatter struct{}

// receiveInto reads into rest, or into staging if rest is empty. room is the most it could have
// read.
func receiveInto(fd int, rest, staging []byte, _ *scatter) (n, room int, errno syscall.Errno) {
	to := staging
	if len(rest) > 0 {
		to = rest
	}
	for {
		n, err := unix.Read(fd, to)
		if err == nil {
			return n, len(to), 0
		}
		if errno = number(err); errno != unix.EINTR {
			return 0, len(to), errno
		}
	}
}

// sendFrom writes b, which is not empty. SO_NOSIGPIPE is set.
func sendFrom(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, err := unix.Write(fd, b)
		if err == nil {
			return n, 0
		}
		if errno := number(err); errno != unix.EINTR {
			return 0, errno
		}
	}
}

func number(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return unix.EIO
}

// setPlatformOptions keeps a broken connection from raising SIGPIPE. Keep-alive probes detect a
// silent host.
func setPlatformOptions(fd int, _ time.Duration) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
}

// bindDevice does nothing here: routes decide.
func bindDevice(int, string) {}

type pathInfo struct{}

// pathTrips returns zeros: this system does not say.
func pathTrips(int, *pathInfo) (shortest, smoothed time.Duration) { return 0, 0 }

// carried returns 0: this system does not say.
func carried(int, *pathInfo) (bytes uint64, busy time.Duration) { return 0, 0 }

// unheard returns 0: this system does not say.
func unheard(int) time.Duration { return 0 }

// unanswered returns false: this system does not say.
func unanswered(int, *pathInfo) bool { return false }

// unacknowledged returns the number of bytes that the peer's host has not acknowledged.
func unacknowledged(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NWRITE)
	if err != nil {
		return 0
	}
	return n
}
