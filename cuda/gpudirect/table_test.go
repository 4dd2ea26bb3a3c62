package gpudirect_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/gpudirect"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

const (
	allocation = 256 << 10
	export     = "cuMemGetHandleForAddressRange"
)

// TestBytesAtPeer writes from the begin, the middle and the end of an allocation by each way: what
// a stream has written is what the peer gets.
func TestBytesAtPeer(t *testing.T) {
	for way, r := range map[gpudirect.Way]roads{gpudirect.DMABuf: both, gpudirect.PeerMemory: {peerMemory: true}} {
		t.Run(way.String(), func(t *testing.T) {
			w := newWorld(t, r)
			m := w.alloc(allocation)
			for i, at := range []int{0, 1, 70_001, allocation - 5000} {
				p := m.Ptr() + cuda.Ptr(at)
				want := w.fill(p, 5000, byte(i))
				used := w.use(p, len(want))
				require.Equal(t, way, used.Way())
				w.post(used, p, len(want))
				w.arrives(want)
				used.Done()
			}
			w.free(m)
		})
	}
}

// TestBeginsWithinPage: the region of an allocation that does not begin at a page is at the offset
// of its dma-buf. It has the allocation, and nothing beside it.
func TestBeginsWithinPage(t *testing.T) {
	w := newWorld(t, roads{dmaBuf: true})
	block, err := mem.Alloc(allocation)
	require.NoError(t, err)
	defer block.Free()
	p := w.d.Expose(block.Bytes()[512 : allocation-1000])
	want := w.fill(p+3, 70_000, 1)
	used := w.use(p+3, len(want))
	w.post(used, p+3, len(want))
	w.arrives(want)
	used.Done()
	require.NoError(t, w.table.End(p, 1))
	w.d.Hide(p)
}

// TestKept registers an allocation once, whatever bytes of it are used, and closes the descriptor.
func TestKept(t *testing.T) {
	w := newWorld(t, both)
	one, two := w.alloc(allocation), w.alloc(allocation)
	first := w.use(one.Ptr(), 1)
	require.Same(t, first, w.use(one.Ptr()+100, allocation-100))
	second := w.use(two.Ptr(), 1)
	require.NotSame(t, first, second)
	first.Done()
	first.Done()
	require.Same(t, first, w.use(one.Ptr(), allocation), "it stays while nobody uses it")
	first.Done()
	require.Equal(t, 2, w.d.Calls(export))
	require.Empty(t, openDMABufs(w))
	second.Done()
	w.free(one)
	w.free(two)
}

// openDMABufs returns the descriptors that are open.
func openDMABufs(w *world) (all []string) {
	for _, left := range w.d.Leaks() {
		if strings.HasPrefix(left, "a descriptor ") {
			all = append(all, left)
		}
	}
	return all
}

// TestRoads: what is refused by one way goes by the next one, and if none is left, the error says
// all that was tried.
func TestRoads(t *testing.T) {
	const module = "nvidia_peermem: not supported: RegisterAddress: the kernel has no module for memory of devices"
	for _, test := range []struct {
		name   string
		roads  roads
		faults cudatest.Faults
		refuse []string
		way    gpudirect.Way
		why    string
	}{
		{name: "All", roads: both, way: gpudirect.DMABuf},
		{name: "DriverHasNone", roads: both, faults: cudatest.Faults{NoDMABuf: true}, way: gpudirect.PeerMemory},
		{name: "DriverRefuses", roads: both, way: gpudirect.PeerMemory,
			faults: cudatest.Faults{Fail: []cudatest.Failure{{Call: export, Nth: 1, Code: 2}}}},
		{name: "AdapterHasNone", roads: roads{peerMemory: true}, way: gpudirect.PeerMemory},
		{name: "AdapterRefuses", roads: both, refuse: []string{"RegisterDMABuf"}, way: gpudirect.PeerMemory},
		{name: "None", faults: cudatest.Faults{NoDMABuf: true},
			why: "dmabuf: not supported: the GPU driver refused: " + export + ": CUDA_ERROR_NOT_SUPPORTED (801); " + module},
		{name: "NoneOfAdapter", why: "dmabuf: not supported: RegisterDMABuf: this adapter knows no dma-bufs: operation " +
			"not supported; " + module},
		{name: "AllRefused", roads: both, refuse: []string{"RegisterDMABuf", "RegisterAddress"},
			why: "dmabuf: system error: RegisterDMABuf: refused by the test; nvidia_peermem: system error: RegisterAddress: " +
				"refused by the test"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.roads)
			m := w.alloc(allocation)
			w.d.SetFaults(test.faults)
			for _, call := range test.refuse {
				w.n.Refuse(0, call, 1, nil)
			}
			used, err := w.table.Use(m.Ptr(), 100)
			require.Empty(t, openDMABufs(w))
			if test.why == "" {
				require.NoError(t, err)
				require.Equal(t, test.way, used.Way())
				used.Done()
			} else {
				require.ErrorIs(t, err, fault.NotSupported)
				require.EqualError(t, err, "goccl: not supported: staged through memory of the host: "+test.why)
				// It is not tried again with this memory, though it would be no longer refused.
				_, again := w.table.Use(m.Ptr()+1, 100)
				require.Equal(t, err, again)
			}
			w.free(m)
		})
	}
}

// plain is an adapter without memory of devices.
type plain struct{ verbs.Context }

func TestPlainAdapter(t *testing.T) {
	w := newWorld(t, both)
	m := w.alloc(1)
	table := gpudirect.New(w.c, plain{w.own.c})
	_, err := table.Use(m.Ptr(), 1)
	require.EqualError(t, err, "goccl: not supported: staged through memory of the host: the adapter cannot register memory of "+
		"devices")
	require.NoError(t, table.Close())
	w.free(m)
}

// TestFreedAndAllocatedAgain: at the same address there is other memory then. The registration of
// the old one ends, also if others have freed it without a word, and is not used.
func TestFreedAndAllocatedAgain(t *testing.T) {
	w := newWorld(t, both)
	block, err := mem.Alloc(allocation)
	require.NoError(t, err)
	defer block.Free()
	p := w.d.Expose(block.Bytes())
	old := w.use(p, 100)
	old.Done()
	key := old.Piece(p, 1).Key
	for i := range 3 {
		w.d.Hide(p)
		require.Equal(t, p, w.d.Expose(block.Bytes()[:allocation>>i]))
		want := w.fill(p, 5000, byte(i))
		used := w.use(p, len(want))
		require.NotSame(t, old, used)
		require.NotEqual(t, key, used.Piece(p, 1).Key)
		w.post(used, p, len(want))
		w.arrives(want)
		used.Done()
		require.Len(t, regions(w), 1, "the registration of the old one has ended")
		old = used
	}
	w.d.Hide(p)
}

// regions returns those of the device's memory.
func regions(w *world) (all []string) {
	for _, left := range w.n.Leaks() {
		own := fmt.Sprintf(" at %x", w.own.at)
		if strings.HasPrefix(left, "host 0: fake_0: region ") && !strings.HasSuffix(left, own) {
			all = append(all, left)
		}
	}
	return all
}

// TestFreedInUse: a registration whose memory others have freed while it was used ends with its
// last use.
func TestFreedInUse(t *testing.T) {
	w := newWorld(t, both)
	block, err := mem.Alloc(allocation)
	require.NoError(t, err)
	defer block.Free()
	p := w.d.Expose(block.Bytes())
	old := w.use(p, 100)
	require.Same(t, old, w.use(p, 200))
	w.d.Hide(p)
	w.d.Expose(block.Bytes())
	used := w.use(p, 100)
	require.NotSame(t, old, used)
	require.Len(t, regions(w), 2)
	old.Done()
	require.Len(t, regions(w), 2)
	old.Done()
	require.Len(t, regions(w), 1)
	used.Done()
	w.d.Hide(p)
}

// TestEndInFlight: memory that a write may still read is not freed. Once the write has completed,
// it can be.
func TestEndInFlight(t *testing.T) {
	w := newWorld(t, both)
	m := w.alloc(allocation)
	want := w.fill(m.Ptr(), 9000, 1)
	used := w.use(m.Ptr(), len(want))
	w.post(used, m.Ptr(), len(want)) // the peer has no entry for it, so it does not complete
	err := w.table.End(m.Ptr(), m.Bytes())
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "an adapter may still read 262144 bytes of memory of device 0 at 0x")
	require.ErrorIs(t, w.table.Close(), fault.System)
	w.own.nothing()
	w.arrives(want)
	used.Done()
	w.free(m)
	_, err = w.table.Use(m.Ptr(), 1)
	require.ErrorIs(t, err, fault.Closed)
}

// TestEndRefused: what the adapter does not let go must not be freed. It can be tried again.
func TestEndRefused(t *testing.T) {
	w := newWorld(t, both)
	m := w.alloc(allocation)
	w.use(m.Ptr(), 1).Done()
	w.n.Refuse(0, "Region.Close", 0, nil)
	require.ErrorContains(t, w.table.End(m.Ptr(), m.Bytes()), "Region.Close: refused by the test")
	w.use(m.Ptr(), 1).Done() // it is as it was
	w.n.Permit(0)
	w.free(m)
}

// TestStaleRefused: a registration of memory that is gone, which the adapter does not let go, stays
// until it does, and is not used.
func TestStaleRefused(t *testing.T) {
	w := newWorld(t, both)
	block, err := mem.Alloc(allocation)
	require.NoError(t, err)
	defer block.Free()
	p := w.d.Expose(block.Bytes())
	old := w.use(p, 1)
	old.Done()
	w.d.Hide(p)
	w.d.Expose(block.Bytes())
	w.n.Refuse(0, "Region.Close", 1, nil)
	used := w.use(p, 1)
	require.NotSame(t, old, used)
	used.Done()
	require.Len(t, regions(w), 2)
	require.NoError(t, w.table.End(p, 1))
	require.Empty(t, regions(w))
	w.d.Hide(p)
}

// TestMostKept: of many allocations, those that were used longest ago make room; those in use do
// not.
func TestMostKept(t *testing.T) {
	const most = 256
	w := newWorld(t, both)
	page := os.Getpagesize()
	block, err := mem.Alloc((most + 2) * page)
	require.NoError(t, err)
	defer block.Free()
	at := make([]cuda.Ptr, most+2)
	for i := range at {
		at[i] = w.d.Expose(block.Bytes()[i*page:][:page])
	}
	all := make([]*gpudirect.Memory, most)
	for i := range all {
		all[i] = w.use(at[i], page)
	}
	_, err = w.table.Use(at[most], page)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "staged through memory of the host: 256 other allocations are registered and in use")
	for i := range all {
		all[most-1-i].Done()
	}
	w.use(at[0], page).Done() // now number 1 is the one that was used longest ago
	w.n.Refuse(0, "Region.Close", 1, nil)
	w.use(at[most], page).Done() // and stays, since the adapter does not let it go
	require.Len(t, regions(w), most)
	require.Same(t, all[1], w.use(at[1], page))
	require.Same(t, all[0], w.use(at[0], page))
	require.NotSame(t, all[2], w.use(at[2], page))
	w.use(at[1], page).Done()
	for i := range 2 {
		all[i].Done()
	}
	all[1].Done()
	again := w.use(at[2], page)
	again.Done()
	again.Done()
	require.Len(t, regions(w), most)
	for _, p := range at {
		w.d.Hide(p)
	}
}

// TestOutside: bytes that are not of one allocation of a device.
func TestOutside(t *testing.T) {
	w := newWorld(t, both)
	m := w.alloc(allocation)
	_, err := w.table.Use(w.stage.Ptr(), 100)
	require.ErrorIs(t, err, fault.Invalid)
	_, err = w.table.Use(m.Ptr(), 0)
	require.ErrorIs(t, err, fault.Invalid)
	_, err = w.table.Use(m.Ptr()+100, m.Bytes()-99)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "lie in more than one allocation: the first ends at 0x")
	require.Zero(t, w.d.Calls(export))
	w.d.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: "cuMemGetAddressRange", Nth: 1, Code: 801}}})
	_, err = w.table.Use(m.Ptr(), 1)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "staged through memory of the host: the GPU driver refused: cuMemGetAddressRange")
	w.free(m)
}

// TestProbe tries once, and leaves nothing behind.
func TestProbe(t *testing.T) {
	w := newWorld(t, both)
	for range 2 {
		way, err := w.table.Probe()
		require.NoError(t, err)
		require.Equal(t, gpudirect.DMABuf, way)
	}
	require.Equal(t, 1, w.d.Calls(export))
	require.Empty(t, regions(w))

	w = newWorld(t, roads{})
	for range 2 {
		_, err := w.table.Probe()
		require.ErrorIs(t, err, fault.NotSupported)
		require.ErrorContains(t, err, "staged through memory of the host: dmabuf: ")
	}
	w = newWorld(t, both)
	w.d.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: "cuMemCreate", Nth: 1, Code: 2}}})
	_, err := w.table.Probe()
	require.ErrorIs(t, err, fault.System)
}

// TestThreads has threads use the same allocations, free them, and allocate others, while each
// sends from its own.
func TestThreads(t *testing.T) {
	w := newWorld(t, both)
	shared := w.alloc(allocation)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if err := w.c.Enter(false); err != nil {
				t.Error(err)
				return
			}
			defer w.c.Leave()
			for round := range 20 {
				own, err := w.c.Alloc(64 << 10)
				if err != nil {
					t.Error(err)
					return
				}
				for _, p := range []cuda.Ptr{shared.Ptr() + cuda.Ptr(i*1000+round), own.Ptr()} {
					m, err := w.table.Use(p, 1000)
					if err != nil {
						t.Error(err)
						return
					}
					m.Done()
				}
				if err := w.table.End(own.Ptr(), own.Bytes()); err != nil {
					t.Error(err)
				}
				if err := own.Free(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, regions(w), 1)
	w.free(shared)
}
