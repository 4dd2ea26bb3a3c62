package gpudirect_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/gpudirect"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// patience is the time after which a test says that something hangs.
const patience = 20 * time.Second

// world is a device, whose context the test has entered, an adapter beside it, and a peer that it
// writes to.
type world struct {
	t       *testing.T
	d       *cudatest.Driver
	c       cuda.Context
	stream  cuda.Stream
	stage   cuda.Registered
	n       *verbstest.Network
	table   *gpudirect.Table
	own     *end
	peer    *end
	written uint64 // writes so far
}

// roads says which ways there are.
type roads struct{ dmaBuf, peerMemory bool }

var both = roads{true, true}

const stageBytes = 1 << 20

// newWorld makes a world that must be as it was at the end of the test, without a report.
func newWorld(t *testing.T, r roads) *world {
	t.Helper()
	w := &world{t: t, d: cudatest.New(cudatest.Options{Delay: -1})}
	o := verbstest.Options{Seed: 1, Delay: -1}
	if r.dmaBuf {
		o.DMABuf = w.d.MemoryOfDMABuf
	}
	if r.peerMemory {
		o.PeerMemory = w.d.MemoryAt
	}
	w.n = verbstest.New(o)
	var err error
	w.c, err = w.d.Retain(0)
	require.NoError(t, err)
	require.NoError(t, w.c.Enter(false))
	block, err := mem.Alloc(stageBytes)
	require.NoError(t, err)
	w.stage, err = w.c.Register(block.Bytes())
	require.NoError(t, err)
	w.stream, err = w.c.NewStream(0)
	require.NoError(t, err)
	w.own, w.peer = newEnd(t, w.n.Host(0)), newEnd(t, w.n.Host(1))
	w.own.connect(w.peer)
	w.peer.connect(w.own)
	w.table = gpudirect.New(w.c, w.own.c)
	t.Cleanup(func() {
		require.NoError(t, w.table.Close())
		w.own.close()
		w.peer.close()
		for _, err := range []error{w.stream.Destroy(), w.stage.Free()} {
			require.NoError(t, err)
		}
		w.c.Leave()
		require.NoError(t, w.c.Release())
		require.Empty(t, w.d.Leaks())
		require.Empty(t, w.n.Leaks())
		w.d.Check(t)
		w.n.Check(t)
		w.n.Close()
		w.d.Close()
		require.NoError(t, block.Free())
	})
	return w
}

// alloc allocates memory of the device, which the test frees.
func (w *world) alloc(bytes int) cuda.Memory {
	w.t.Helper()
	m, err := w.c.Alloc(bytes)
	require.NoError(w.t, err)
	return m
}

// free frees memory as its owner does.
func (w *world) free(m cuda.Memory) {
	w.t.Helper()
	require.NoError(w.t, w.table.End(m.Ptr(), m.Bytes()))
	require.NoError(w.t, m.Free())
}

// fill has a stream write random bytes to memory of the device, and waits for it.
func (w *world) fill(p cuda.Ptr, bytes int, seed byte) []byte {
	w.t.Helper()
	want := make([]byte, bytes)
	rand.NewChaCha8([32]byte{seed}).Read(want)
	ended := w.c.(cuda.Observer).HostAccess(w.stage.Ptr(), bytes, true)
	copy(w.stage.Host(), want)
	ended()
	require.NoError(w.t, w.stream.Copy(p, w.stage.Ptr(), bytes))
	require.NoError(w.t, w.stream.Synchronize())
	return want
}

// use is Use of memory that can be used.
func (w *world) use(p cuda.Ptr, bytes int) *gpudirect.Memory {
	w.t.Helper()
	m, err := w.table.Use(p, bytes)
	require.NoError(w.t, err)
	return m
}

// post writes from memory of the device to the begin of the peer's memory.
func (w *world) post(m *gpudirect.Memory, p cuda.Ptr, bytes int) {
	w.t.Helper()
	w.written++
	_, err := w.own.pair.Post([]verbs.Write{{Cookie: w.written, From: [2]verbs.Piece{m.Piece(p, bytes)},
		To: w.peer.at, Key: w.peer.region.Remote(), Tell: true, Complete: true}})
	require.NoError(w.t, err)
}

// arrives has the peer take a write, and waits until both sides know.
func (w *world) arrives(want []byte) {
	w.t.Helper()
	require.NoError(w.t, w.peer.receives.Post(1))
	require.EqualValues(w.t, len(want), w.peer.poll().Bytes)
	require.Equal(w.t, w.written, w.own.poll().Cookie)
	require.Equal(w.t, want, w.peer.memory.Bytes()[:len(want)])
}

// end is an open adapter, with a pair.
type end struct {
	t        *testing.T
	c        verbs.Context
	port     verbs.Port
	queue    verbs.Completions
	receives verbs.Receives
	pair     verbs.Pair
	memory   *mem.Block
	at       uint64 // its address
	region   verbs.Region
}

func newEnd(t *testing.T, l verbs.Library) *end {
	t.Helper()
	e := &end{t: t}
	devices, err := l.Devices()
	require.NoError(t, err)
	e.port = devices[0].Ports[0]
	e.c, err = l.Open(devices[0].Name)
	require.NoError(t, err)
	e.queue, err = e.c.NewCompletions(64)
	require.NoError(t, err)
	e.receives, err = e.c.NewReceives(16)
	require.NoError(t, err)
	e.pair, err = e.c.NewPair(verbs.PairOptions{Completions: e.queue, Receives: e.receives, Posted: 16})
	require.NoError(t, err)
	e.memory, err = mem.Alloc(stageBytes)
	require.NoError(t, err)
	e.at = addressOf(e.memory.Bytes())
	e.region, err = e.c.Register(e.memory.Bytes(), true)
	require.NoError(t, err)
	return e
}

func (e *end) connect(to *end) {
	e.t.Helper()
	gid := e.port.GIDs[len(e.port.GIDs)-1]
	theirs := to.port.GIDs[len(to.port.GIDs)-1]
	require.NoError(e.t, e.pair.Connect(verbs.Connection{Port: e.port.Number, GID: gid.Index, MTU: 4096,
		Remote: verbs.Remote{Pair: to.pair.Number(), GID: theirs.Value},
		Timing: verbs.Timing{Timeout: 17, Retries: 5, NotReady: 7}}))
}

// poll waits for a completion, which must be one of success.
func (e *end) poll() verbs.Completion {
	e.t.Helper()
	var into [1]verbs.Completion
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		n, err := e.queue.Poll(into[:])
		require.NoError(e.t, err)
		if n == 1 {
			require.Equal(e.t, verbs.Success, into[0].Status)
			return into[0]
		}
	}
	require.Fail(e.t, "hangs: no completion has come")
	return verbs.Completion{}
}

// nothing fails if a completion has come.
func (e *end) nothing() {
	e.t.Helper()
	n, err := e.queue.Poll(make([]verbs.Completion, 1))
	require.NoError(e.t, err)
	require.Zero(e.t, n)
}

func (e *end) close() {
	e.t.Helper()
	for _, end := range []func() error{e.pair.Close, e.receives.Close, e.queue.Close, e.region.Close, e.memory.Free,
		e.c.Close} {
		require.NoError(e.t, end())
	}
}
