package inproc

import (
	"bytes"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"golang.org/x/sys/unix"
)

// copies returns copies of the descriptors that a session shares, for the other end.
func copies(s *transport.Session) (all []int, err error) {
	if err := transport.CheckShare(s.Share, s.Note); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "inproc: rank %d", s.Rank)
	}
	for _, fd := range s.Share {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		switch {
		case err == nil:
			all = append(all, other)
			continue
		case transport.Lacks(err):
			err = fault.Wrap(fault.System, err, "inproc: no copy of descriptor %d can be made", fd)
		default:
			err = fault.Wrap(fault.Invalid, err, "inproc: rank %d cannot share descriptor %d", s.Rank, fd)
		}
		closeAll(all)
		return nil, err
	}
	return all, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Shared returns what the other end shares.
func (l *link) Shared() (note []byte, descriptors []int) {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	descriptors, l.shared = l.shared, nil
	return bytes.Clone(l.other.session.Note), descriptors
}
