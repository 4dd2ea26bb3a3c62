package tcp

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// congestionOf returns the congestion control of a socket, "" if the system does not say.
func congestionOf(fd int) string {
	name, _ := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return name
}

func setCongestion(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// Congestion returns the congestion control that the system gives to connections, and what they
// have on short paths with a choice (Options.Congestion). It returns an error if the system refuses
// what was chosen.
func Congestion(choice string) (system, short string, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return "", "", fault.Wrap(fault.System, err, "tcp: cannot make a socket")
	}
	defer unix.Close(fd)
	system = congestionOf(fd)
	if _, err = giveCongestion(fd, congestions(choice, system, 1)); err != nil && choice != "" {
		allowed, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
		return system, "", fault.New(fault.Invalid, "GOCCL_SOCKET_CONGESTION=%s: the system does not have it, or not for "+
			"this user; all users may have %s (net.ipv4.tcp_allowed_congestion_control)", choice,
			strings.Join(strings.Fields(string(allowed)), ", "))
	}
	return system, congestionOf(fd), nil
}
