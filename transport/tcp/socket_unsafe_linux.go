package tcp

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scatter holds the I/O vectors of one readv.
type scatter [2]unix.Iovec

// receiveInto reads into rest first and the remainder into staging. room is the most it could have
// read.
func receiveInto(fd int, rest, staging []byte, iov *scatter) (n, room int, errno syscall.Errno) {
	room = len(rest) + len(staging)
	for {
		var got uintptr
		if len(rest) == 0 {
			got, _, errno = unix.Syscall(
				unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&staging[0])), uintptr(len(staging)))
		} else {
			iov[0].Base, iov[1].Base = &rest[0], &staging[0]
			iov[0].SetLen(len(rest))
			iov[1].SetLen(len(staging))
			got, _, errno = unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(iov)), 2)
			iov[0].Base = nil
		}
		if errno == 0 {
			return int(got), room, 0
		}
		if errno != unix.EINTR {
			return 0, room, errno
		}
	}
}

// sendFrom writes b, which is not empty. A broken connection raises no SIGPIPE.
func sendFrom(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// setPlatformOptions makes the kernel give up on a peer whose host stays silent for d.
func setPlatformOptions(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// bindDevice makes a socket use one interface. Where the system refuses it, routes decide.
func bindDevice(fd int, name string) { unix.BindToDevice(fd, name) }

// pathInfo is memory for pathTrips.
type pathInfo = unix.TCPInfo

// pathTrips returns the shortest round trip that the kernel has seen, 0 if it does not say, and the
// smoothed one.
func pathTrips(fd int, info *pathInfo) (shortest, smoothed time.Duration) {
	look(fd, info)
	return time.Duration(info.Min_rtt) * time.Microsecond, time.Duration(info.Rtt) * time.Microsecond
}

func look(fd int, info *pathInfo) {
	*info = pathInfo{}
	n := uint32(unsafe.Sizeof(*info))
	unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
}

// carried returns how many bytes the peer's host has acknowledged, and for how long there were some
// to acknowledge; 0 if the kernel does not say.
func carried(fd int, info *pathInfo) (bytes uint64, busy time.Duration) {
	look(fd, info)
	return info.Bytes_acked, time.Duration(info.Busy_time) * time.Microsecond
}

// unheard returns how long ago the peer's host was heard last.
func unheard(fd int) time.Duration {
	var info unix.TCPInfo
	look(fd, &info)
	return time.Duration(min(info.Last_data_recv, info.Last_ack_recv)) * time.Millisecond
}

// unanswered reports whether the kernel has sent something again, or asked whether an idle peer is
// there, and waits for the answer.
func unanswered(fd int, info *pathInfo) bool {
	look(fd, info)
	return info.Probes > 0 || info.Retransmits > 0
}

// unacknowledged returns the number of bytes that the peer's host has not acknowledged.
func unacknowledged(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
