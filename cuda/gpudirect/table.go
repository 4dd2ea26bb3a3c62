package gpudirect

import (
	"errors"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// mostKept is how many registrations and refusals a Table keeps.
const mostKept = 256

// Table has what an adapter may read of the memory of a device. Any thread may call its methods,
// between Enter and Leave of the device's context where it says so.
type Table struct {
	device  cuda.Context
	adapter verbs.Context

	probe    sync.Once
	probed   Way
	unprobed error

	mu     sync.Mutex
	closed bool
	clock  uint64             // uses so far
	kept   map[uint64]*Memory // by the ID of the allocation
}

// Memory is an allocation that the adapter reads.
type Memory struct {
	t       *Table
	id      uint64
	at, end cuda.Ptr
	way     Way
	region  verbs.Region
	staged  error // why there is none

	// Guarded by Table.mu.
	uses  int
	last  uint64 // Table.clock at the last one
	stale bool   // the memory is another allocation's by now
}

// New makes a table. The device and the adapter stay the caller's, and must outlive it.
func New(device cuda.Context, adapter verbs.Context) *Table {
	return &Table{device: device, adapter: adapter, kept: map[uint64]*Memory{}}
}

// Use returns the allocation that bytes of device memory lie in, registered with the adapter. It
// stays so until Done. Where the adapter cannot read them, the error is fault.NotSupported, and
// they have to be staged. The caller has entered the context.
func (t *Table) Use(p cuda.Ptr, bytes int) (*Memory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fault.New(fault.Closed, "the table of registered memory is closed")
	}
	r, err := t.device.Range(p)
	switch {
	case errors.Is(err, fault.NotSupported):
		return nil, staged(err)
	case err != nil:
		return nil, err
	case bytes <= 0:
		return nil, fault.New(fault.Invalid, "%d bytes of memory of a device", bytes)
	case bytes > r.Bytes-int(p-r.Ptr):
		return nil, staged(fault.New(fault.NotSupported, "%d bytes at %#x lie in more than one allocation: the first ends at %#x",
			bytes, uint64(p), uint64(r.Ptr)+uint64(r.Bytes)))
	}
	m := t.kept[r.ID]
	if m == nil {
		if m, err = t.add(r); err != nil {
			return nil, err
		}
	}
	t.clock++
	m.last = t.clock
	if m.region == nil {
		return nil, m.staged
	}
	m.uses++
	return m, nil
}

// add registers an allocation, or notes why it cannot be.
func (t *Table) add(r cuda.Range) (*Memory, error) {
	m := &Memory{t: t, id: r.ID, at: r.Ptr, end: r.Ptr + cuda.Ptr(r.Bytes)}
	for _, old := range t.within(m.at, m.end) { // was freed, since this is allocated
		old.stale = true
		_ = t.drop(old) // what the adapter does not let go is kept, and has no other use
	}
	if err := t.makeRoom(); err != nil {
		return nil, err
	}
	m.way, m.region, m.staged = t.register(r)
	t.kept[m.id] = m
	return m, nil
}

// within returns what is kept of a range of addresses.
func (t *Table) within(at, end cuda.Ptr) (all []*Memory) {
	for _, m := range t.kept {
		if m.at < end && at < m.end {
			all = append(all, m)
		}
	}
	return all
}

// makeRoom drops what was used longest ago, if there is no room for one more.
func (t *Table) makeRoom() error {
	var failed error
	for refused := map[*Memory]bool{}; len(t.kept) >= mostKept; {
		var oldest *Memory
		for _, m := range t.kept {
			if m.uses == 0 && !refused[m] && (oldest == nil || m.last < oldest.last) {
				oldest = m
			}
		}
		if oldest == nil {
			return staged(fault.Wrap(fault.NotSupported, failed, "%d other allocations are registered and in use", len(t.kept)))
		}
		if failed = t.drop(oldest); failed != nil {
			refused[oldest] = true
		}
	}
	return nil
}

// drop ends what is kept of an allocation, unless it is in use. After an error it stays.
func (t *Table) drop(m *Memory) error {
	if m.uses > 0 {
		return fault.New(fault.System, "an adapter may still read %d bytes of memory of device %d at %#x; they must stay as "+
			"they are", int(m.end-m.at), t.device.Info().Index, uint64(m.at))
	}
	if m.region != nil {
		if err := m.region.Close(); err != nil {
			return err
		}
	}
	delete(t.kept, m.id)
	return nil
}

// End ends the access to memory that is about to be freed. After an error an adapter may still read
// it, so it must not be.
func (t *Table) End(p cuda.Ptr, bytes int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropAll(t.within(p, p+cuda.Ptr(bytes)))
}

// Close ends the access to all memory. After an error some of it may still be read; Close can be
// repeated.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.dropAll(t.within(0, ^cuda.Ptr(0)))
}

func (t *Table) dropAll(all []*Memory) error {
	var errs []error
	for _, m := range all {
		errs = append(errs, t.drop(m))
	}
	return errors.Join(errs...)
}

// Way returns how the adapter reads the memory.
func (m *Memory) Way() Way { return m.way }

// Piece returns bytes of the memory as a piece of a write.
func (m *Memory) Piece(p cuda.Ptr, bytes int) verbs.Piece {
	return verbs.Piece{At: uint64(p), Bytes: uint32(bytes), Key: m.region.Local()}
}

// Done ends a use: the adapter has read what it was to read.
func (m *Memory) Done() {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	if m.uses--; m.uses == 0 && m.stale {
		_ = m.t.drop(m) // what the adapter does not let go is kept, and has no other use
	}
}

// staged is the error of memory that the adapter does not read.
func staged(cause error) error {
	return fault.Wrap(fault.NotSupported, cause, "staged through memory of the host")
}
