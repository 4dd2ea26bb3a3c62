//go:build !linux

package shm

import (
	"context"
	"net/netip"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// Fabric is not supported: shared memory needs Linux.
type Fabric struct{}

var _ transport.Fabric = (*Fabric)(nil)

func notSupported() error {
	return fault.New(fault.NotSupported, "shm: shared memory between processes needs Linux; use tcp")
}

// NewDoorbell returns fault.NotSupported.
func NewDoorbell() (*mem.Segment, error) { return nil, notSupported() }

// New returns fault.NotSupported.
func New(Options) (*Fabric, error) { return nil, notSupported() }

// Doorbell returns nil.
func (f *Fabric) Doorbell() *park.Doorbell { return nil }

// Name returns "shm".
func (f *Fabric) Name() string { return "shm" }

// Address returns nil.
func (f *Fabric) Address() []byte { return nil }

// Reaches returns false.
func (f *Fabric) Reaches([]byte) bool { return false }

// SharesMemory returns false.
func (f *Fabric) SharesMemory() bool { return false }

// Locate returns none.
func (f *Fabric) Locate([]byte) []netip.Addr { return nil }

// Connect returns fault.NotSupported.
func (f *Fabric) Connect(context.Context, []byte, transport.Session) (transport.Link, error) {
	return nil, notSupported()
}

// Close does nothing.
func (f *Fabric) Close() error { return nil }
