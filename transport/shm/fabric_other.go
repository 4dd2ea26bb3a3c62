//go:build !linux

package shm

import (
	"context"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
)

// Fabric needs Linux.
type Fabric struct{}

var _ transport.Fabric = (*Fabric)(nil)

func notSupported() error {
	return fault.New(fault.NotSupported, "shm: shared memory between processes needs Linux; use tcp")
}

// NewBell returns fault.NotSupported.
func NewBell() (*mem.Segment, error) { return nil, notSupported() }

// New returns fault.NotSupported.
func New(Options) (*Fabric, error) { return nil, notSupported() }

// Bell returns nil.
func (f *Fabric) Bell() *park.Bell { return nil }

// Name is "shm".
func (f *Fabric) Name() string { return "shm" }

// Address is empty.
func (f *Fabric) Address() []byte { return nil }

// Reaches is never true.
func (f *Fabric) Reaches([]byte) bool { return false }

// SharesMemory is never true.
func (f *Fabric) SharesMemory() bool { return false }

// Connect returns fault.NotSupported.
func (f *Fabric) Connect(context.Context, []byte, transport.Session) (transport.Link, error) {
	return nil, notSupported()
}

// Close does nothing.
func (f *Fabric) Close() error { return nil }
