package mem

import (
	"github.com/goccl/goccl/ccl/fault"
	"golang.org/x/sys/unix"
)

const (
	sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	remedy    = "a smaller pool, fewer groups or a higher memory limit of the container would help"
)

// NewSegment makes a segment and maps it. The name appears in /proc/PID/maps.
func NewSegment(name string, bytes int) (*Segment, error) {
	if bytes <= 0 {
		return nil, fault.New(fault.Invalid, "a shared segment %q of %d bytes was asked for", name, bytes)
	}
	return newSegment(name, bytes, placementOf(bytes))
}

func newSegment(name string, bytes int, at placement) (*Segment, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "memfd_create of the shared segment %q; %s", name, remedyOf(err))
	}
	s := &Segment{fd: fd}
	if err := s.prepare(bytes, at); err != nil {
		s.Free()
		return nil, fault.Wrap(fault.System, err,
			"no shared memory for segment %q of %d bytes; %s", name, bytes, remedyOf(err))
	}
	return s, nil
}

func (s *Segment) prepare(bytes int, at placement) error {
	if err := unix.Ftruncate(s.fd, int64(bytes)); err != nil {
		return err
	}
	memory, err := mapShared(s.fd, bytes, unix.PROT_READ|unix.PROT_WRITE, 0)
	if err != nil {
		return err
	}
	s.memory = memory
	inUse.Add(int64(bytes))
	if err := commit(s.fd, 0, memory, at); err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, sizeSeals|unix.F_SEAL_SEAL)
	return err
}

// MapSegment maps a segment that another process made, received as the descriptor fd. It refuses a
// descriptor that is not a memfd of exactly this size with a sealed size: another process could
// shrink it while it is mapped. The caller keeps fd, and may close it at once.
func MapSegment(fd, bytes int) (*Segment, error) {
	if err := checkSealed(fd, bytes); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fault.Wrap(fault.System, err, "fstat of a received segment")
	}
	// A hole would be filled at its first use or, where memory is short, end this process with a
	// signal.
	if st.Blocks*512 < int64(bytes) {
		return nil, fault.New(fault.Invalid,
			"a received segment of %d bytes is not allocated (%d are)", bytes, st.Blocks*512)
	}
	// Only the maker writes, but a writable mapping is faster to read (RATIONALE.md).
	const protection = unix.PROT_READ | unix.PROT_WRITE
	memory, err := mapShared(fd, bytes, protection, unix.MAP_POPULATE)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "a received segment of %d bytes could not be mapped", bytes)
	}
	inUse.Add(int64(bytes))
	return &Segment{memory: memory, fd: -1}, nil
}

// checkSealed refuses a descriptor that is not a memfd of exactly this size with a sealed size.
func checkSealed(fd, bytes int) error {
	if bytes <= 0 {
		return fault.New(fault.Invalid, "a received segment is said to have %d bytes", bytes)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "a received descriptor is no shared segment")
	}
	if seals&sizeSeals != sizeSeals {
		return fault.New(fault.Invalid, "a received segment is not sealed against resizing (seals %#x)", seals)
	}
	// The size is read after the seals are checked: before, it could still change.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fault.Wrap(fault.System, err, "fstat of a received segment")
	}
	if st.Size != int64(bytes) {
		return fault.New(fault.Invalid, "a received segment has %d bytes, want %d", st.Size, bytes)
	}
	return nil
}

// CloseFD closes the descriptor; the memory stays mapped. It is called once all peers have the
// segment.
func (s *Segment) CloseFD() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeFD()
}

func (s *Segment) closeFD() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	if err != nil {
		return fault.Wrap(fault.System, err, "close of a shared segment")
	}
	return nil
}

// Free unmaps the memory and closes the descriptor. A second Free does nothing.
func (s *Segment) Free() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.closeFD()
	if s.memory != nil {
		inUse.Add(-int64(len(s.memory)))
		if e := unmapShared(s.memory); e != nil && err == nil {
			err = fault.Wrap(fault.System, e, "unmap of a shared segment")
		}
		s.memory = nil
	}
	return err
}

// again repeats a call for as long as signals interrupt it; the Go runtime sends signals of its
// own.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
