//go:build !linux

package mem

import "github.com/goccl/goccl/ccl/fault"

// NewSegment needs Linux.
func NewSegment(name string, bytes int) (*Segment, error) {
	return nil, fault.New(fault.NotSupported, "shared segment %q: shared memory between processes needs Linux", name)
}

// MapSegment needs Linux.
func MapSegment(fd, bytes int) (*Segment, error) {
	return nil, fault.New(fault.NotSupported, "shared memory between processes needs Linux")
}

// CloseFD does nothing: no segment exists here.
func (s *Segment) CloseFD() error { return nil }

// Free does nothing: no segment exists here.
func (s *Segment) Free() error { return nil }
