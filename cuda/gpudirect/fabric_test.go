package gpudirect_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/gpudirect"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
	"github.com/goccl/goccl/transport/tcp"
)

// adapters are those of a library, which register memory of a device as a Table says.
type adapters struct {
	verbs.Library
	device cuda.Context
}

type adapter struct {
	verbs.Context
	device cuda.Context
	table  *gpudirect.Table
}

// region is memory of a device.
type region struct {
	*adapter
	used *gpudirect.Memory
	at   cuda.Ptr
	key  uint32
}

func (l adapters) Open(name string) (verbs.Context, error) {
	c, err := l.Library.Open(name)
	if err != nil {
		return nil, err
	}
	return &adapter{c, l.device, gpudirect.New(l.device, c)}, nil
}

func (a *adapter) Register(memory []byte, remote bool) (verbs.Region, error) {
	if remote {
		return a.Context.Register(memory, remote)
	}
	if err := a.device.Enter(false); err != nil {
		return nil, err
	}
	defer a.device.Leave()
	p := cuda.Ptr(addressOf(memory))
	if _, err := a.device.Range(p); err != nil { // of the host
		return a.Context.Register(memory, remote)
	}
	used, err := a.table.Use(p, len(memory))
	if err != nil {
		return nil, err
	}
	return &region{a, used, p, used.Piece(p, 1).Key}, nil
}

func (r *region) Local() uint32  { return r.key }
func (r *region) Remote() uint32 { return 0 }

func (r *region) Close() error {
	r.used.Done()
	return r.table.End(r.at, 1)
}

// TestGather sends memory of a device over a link, in place, as memory of the host is: the
// transport needs nothing for that but the region. (The simulated device's memory can be read by
// the processor, so the path that takes over after a failure would do as well. That of a GPU
// cannot.)
func TestGather(t *testing.T) {
	d := cudatest.New(cudatest.Options{Delay: -1})
	t.Cleanup(d.Close)
	n := verbstest.New(verbstest.Options{Delay: -1, DMABuf: d.MemoryOfDMABuf})
	t.Cleanup(n.Close)
	c, err := d.Retain(0)
	require.NoError(t, err)
	require.NoError(t, c.Enter(false))
	m, err := c.Alloc(allocation)
	require.NoError(t, err)
	memory, _, err := d.MemoryAt(uint64(m.Ptr()), m.Bytes())
	require.NoError(t, err)
	s, err := c.NewStream(0)
	require.NoError(t, err)
	want := make([]byte, allocation)
	for i := range want {
		want[i] = byte(i * 31 >> 3)
	}
	host := d.Expose(want)
	require.NoError(t, s.Copy(m.Ptr(), host, allocation))
	require.NoError(t, s.Synchronize())
	d.Hide(host)

	x := newFabric(t, adapters{n.Host(0), c})
	y := newFabric(t, n.Host(1))
	require.NoError(t, x.Pin(memory))
	var from, to transport.Link
	var both sync.WaitGroup
	both.Go(func() { from, err = x.Connect(t.Context(), y.Address(), transport.Session{Peer: 1, Channels: 1}) })
	both.Go(func() { to, _ = y.Connect(t.Context(), x.Address(), transport.Session{Rank: 1, Channels: 1}) })
	both.Wait()
	require.NoError(t, err)
	require.NotNil(t, to)

	var mu sync.Mutex
	inPlace := 0
	n.Tap(0, func(w verbs.Write) {
		mu.Lock()
		defer mu.Unlock()
		if at := cuda.Ptr(w.From[1].At); at >= m.Ptr() && at < m.Ptr()+allocation {
			inPlace += int(w.From[1].Bytes)
		}
	})
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !done(); runtime.Gosched() {
			x.Poll()
			y.Poll()
			require.True(t, time.Now().Before(deadline), "hangs: "+what)
		}
	}
	out, in := from.Channel(0), to.Channel(0)
	const begin = 1001 // in the middle of a registered allocation
	for at := begin; at < allocation; {
		n := 0
		until("a fragment leaves", func() bool {
			var ok bool
			n, ok = out.(transport.Gatherer).Gather(memory[at:], &transport.Meta{})
			require.True(t, ok, "the memory would be copied")
			return n > 0
		})
		require.ErrorIs(t, x.Unpin(memory), fault.System, "the adapter may read it")
		until("a fragment arrives", func() bool {
			payload, m := in.Look()
			if m != nil {
				require.Equal(t, want[at:at+n], payload)
			}
			return m != nil
		})
		in.Release()
		at += n
	}
	until("everything is sent", out.(transport.Gatherer).Sent)
	mu.Lock()
	require.Equal(t, allocation-begin, inPlace)
	mu.Unlock()
	require.NoError(t, x.Unpin(memory))
	require.NoError(t, from.Close())
	require.NoError(t, to.Close())
	require.NoError(t, x.Close())
	require.NoError(t, y.Close())
	require.NoError(t, s.Destroy())
	require.NoError(t, m.Free())
	c.Leave()
	require.NoError(t, c.Release())
	require.Empty(t, n.Leaks())
	require.Empty(t, d.Leaks())
	n.Check(t)
	d.Check(t)
}

func newFabric(t *testing.T, library verbs.Library) *rdma.Fabric {
	t.Helper()
	doorbell := park.NewDoorbell()
	base, err := tcp.New(tcp.Options{Doorbell: doorbell, Interfaces: "lo"})
	require.NoError(t, err)
	t.Cleanup(func() { base.Close() })
	f, err := rdma.New(rdma.Options{TCP: base, Library: library, Doorbell: doorbell,
		Wishes: rdma.Wishes{GID: rdma.AnyGID}, Warn: t.Logf, Info: t.Logf})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
