//go:build !linux

package mem

import "github.com/goccl/goccl/ccl/fault"

// NewArena needs Linux.
func NewArena(bytes int) (*Arena, error) {
	return nil, fault.New(fault.NotSupported, "registered memory needs Linux")
}

// MapArena needs Linux.
func MapArena(fd, bytes int) (*Arena, error) {
	return nil, fault.New(fault.NotSupported, "registered memory needs Linux")
}

func (a *Arena) commit(at, bytes int) error {
	return fault.New(fault.NotSupported, "registered memory needs Linux")
}

func (a *Arena) release(at, bytes int) {}

func (a *Arena) endUnused() error { return nil }
