package share

import (
	"encoding/binary"
	"os"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
)

// newChannel returns the two ends of a channel for descriptors: the first stays with this rank, and
// each peer gets a copy of the other.
func newChannel() (own, theirs int, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX,
		syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socketpair", err)
	}
	return pair[0], pair[1], nil
}

// Pass sends a descriptor, with a number, for one of the peers.
func Pass(channel int, number uint64, descriptor int) error {
	err := syscall.Sendmsg(channel, binary.LittleEndian.AppendUint64(nil, number), syscall.UnixRights(descriptor), nil,
		syscall.MSG_NOSIGNAL)
	return os.NewSyscallError("sendmsg", err)
}

// Passed returns the descriptor that a peer has sent with a number.
func Passed(channel int, number uint64) (int, error) {
	text, rights := make([]byte, 9), make([]byte, syscall.CmsgSpace(2*4))
	n, m, _, _, err := syscall.Recvmsg(channel, text, rights, syscall.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	var all []int
	if messages, err := syscall.ParseSocketControlMessage(rights[:m]); err == nil {
		for i := range messages {
			some, _ := syscall.ParseUnixRights(&messages[i])
			all = append(all, some...)
		}
	}
	if n == 8 && len(all) == 1 && binary.LittleEndian.Uint64(text) == number {
		return all[0], nil
	}
	for _, descriptor := range all {
		syscall.Close(descriptor)
	}
	return -1, fault.New(fault.Internal, "%d descriptors in %d bytes have come, and not the one of memory %d", len(all), n,
		number)
}
