package gpudirect

import (
	"os"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// Way is how an adapter reads memory of a device.
type Way int

// The ways, in the order in which they are tried.
const (
	DMABuf     Way = 1 + iota // by a descriptor of the GPU driver
	PeerMemory                // by its address, with nvidia_peermem
)

// String returns "dmabuf" or "nvidia_peermem".
func (w Way) String() string { return [...]string{"none", "dmabuf", "nvidia_peermem"}[w] }

// register registers an allocation by the first way that works. err says why none does.
func (t *Table) register(r cuda.Range) (way Way, region verbs.Region, err error) {
	adapter, ok := t.adapter.(verbs.DeviceRegistrar)
	if !ok {
		return 0, nil, staged(fault.New(fault.NotSupported, "the adapter cannot register memory of devices"))
	}
	region, byDMABuf := t.byDMABuf(adapter, r)
	if byDMABuf == nil {
		return DMABuf, region, nil
	}
	region, byAddress := adapter.RegisterAddress(uint64(r.Ptr), r.Bytes)
	if byAddress == nil {
		return PeerMemory, region, nil
	}
	return 0, nil, staged(fault.New(fault.NotSupported, "%v: %s; %v: %s", DMABuf, fault.Text(byDMABuf), PeerMemory,
		fault.Text(byAddress)))
}

func (t *Table) byDMABuf(adapter verbs.DeviceRegistrar, r cuda.Range) (verbs.Region, error) {
	page := cuda.Ptr(os.Getpagesize())
	first := r.Ptr &^ (page - 1)
	end := (r.Ptr + cuda.Ptr(r.Bytes) + page - 1) &^ (page - 1)
	descriptor, err := t.device.DMABuf(first, int(end-first))
	if err != nil {
		return nil, err
	}
	defer syscall.Close(descriptor) // the region keeps what it needs
	return adapter.RegisterDMABuf(descriptor, uint64(r.Ptr-first), r.Bytes, uint64(r.Ptr))
}

// probeBytes is the memory that Probe tries with.
const probeBytes = 64 << 10

// Probe tries with memory of its own by which way the adapter reads memory of the device. It does
// so once; later calls return the same. The caller has entered the context. It may wait for streams
// (cuda.Context).
func (t *Table) Probe() (Way, error) {
	t.probe.Do(func() { t.probed, t.unprobed = t.try() })
	return t.probed, t.unprobed
}

func (t *Table) try() (Way, error) {
	memory, err := t.device.Alloc(probeBytes)
	if err != nil {
		return 0, err
	}
	m, refused := t.Use(memory.Ptr(), memory.Bytes())
	var way Way
	if refused == nil {
		way = m.Way()
		m.Done()
	}
	if err := t.End(memory.Ptr(), memory.Bytes()); err != nil {
		return 0, err // and the memory stays
	}
	if err := memory.Free(); err != nil {
		return 0, err
	}
	return way, refused
}
