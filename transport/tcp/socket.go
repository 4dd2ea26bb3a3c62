package tcp

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"golang.org/x/sys/unix"
)

// again reports whether an error means that the socket has nothing to read or takes nothing just
// now.
func again(e syscall.Errno) bool { return e == unix.EAGAIN || e == unix.ENOBUFS || e == unix.ENOMEM }

// shutdown ends this side's direction of a connection, or both directions.
func shutdown(fd int, both bool) {
	how := unix.SHUT_WR
	if both {
		how = unix.SHUT_RDWR
	}
	unix.Shutdown(fd, how) // fails only if there is nothing left to end
}

func closeSocket(fd int) { unix.Close(fd) }

// segment returns the bytes of a segment of a connection, 0 if the system does not say.
func segment(fd int) int {
	n, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	return n
}

// limitSegment has a connection, before it is made, carry segments of at most n bytes in both
// directions; 0 for as many as the path seems to carry.
func limitSegment(fd, n int) {
	if n > 0 {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, n)
	}
}

// mostUnsent is what one of several sockets holds that has not left, in bytes.
const mostUnsent = maxPayload

// limitUnsent makes a socket refuse more than mostUnsent bytes that cannot leave yet.
func limitUnsent(fd int) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, mostUnsent)
}

// probeIdle is how long a connection is idle before the kernel asks whether the peer's host is
// there, and the time from question to question. It is the shortest that the kernel takes.
const probeIdle = time.Second

// tune sets the options of an authenticated connection.
func tune(nc *net.TCPConn, o *Options) error {
	nc.SetNoDelay(true)
	nc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeIdle, Interval: probeIdle,
		Count: int(max(o.silence()/probeIdle, 2))})
	raw, err := nc.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = setPlatformOptions(int(fd), o.silence()) })
	return errors.Join(err, failed)
}

// takeSocket sets up an authenticated connection for frames and takes its socket away from the net
// package, whose poller would wake a goroutine for each event. The descriptor stays non-blocking.
func takeSocket(nc *net.TCPConn, o *Options) (int, error) {
	err := tune(nc, o)
	var raw syscall.RawConn
	if err == nil {
		raw, err = nc.SyscallConn()
	}
	fd := -1
	if err == nil {
		cerr := raw.Control(func(old uintptr) {
			fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
		})
		if err == nil {
			err = cerr
		}
	}
	nc.Close()
	if err == nil {
		return fd, nil
	}
	return -1, fault.Wrap(fault.System, err, "tcp: cannot set up the connection to %v", nc.RemoteAddr())
}
