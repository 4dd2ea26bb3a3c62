//go:build !race

package group_test

import (
	"context"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
)

// instant is a device that executes everything at once, except for copies and waits, which it
// leaves out. It allocates nothing, so that what the group allocates shows.
type instant struct{ words []byte }

type instantMemory struct {
	host []byte
}

type instantStream struct{ of *instant }

type instantEvent struct{}

func (d *instant) Info() cuda.Info                      { return cuda.Info{Words: true, Registers: true} }
func (d *instant) Enter(bool) error                     { return nil }
func (d *instant) Leave()                               {}
func (d *instant) Alloc(int) (cuda.Memory, error)       { return nil, nil }
func (d *instant) Import(int, int) (cuda.Memory, error) { return nil, nil }
func (d *instant) NewStream(int) (cuda.Stream, error)   { return &instantStream{d}, nil }
func (d *instant) Adopt(uintptr) cuda.Stream            { return &instantStream{d} }
func (d *instant) NewEvent() (cuda.Event, error)        { return instantEvent{}, nil }
func (d *instant) Load([]byte) (cuda.Module, error)     { return nil, nil }
func (d *instant) Reaches(int) (bool, error)            { return false, nil }
func (d *instant) Range(cuda.Ptr) (cuda.Range, error)   { return cuda.Range{}, nil }
func (d *instant) DMABuf(cuda.Ptr, int) (int, error)    { return -1, nil }
func (d *instant) Release() error                       { return nil }
func (d *instant) Register(b []byte) (cuda.Registered, error) {
	d.words = b
	return &instantMemory{b}, nil
}

func (m *instantMemory) Ptr() cuda.Ptr            { return 0 }
func (m *instantMemory) Bytes() int               { return len(m.host) }
func (m *instantMemory) Descriptor() (int, error) { return -1, nil }
func (m *instantMemory) Free() error              { return nil }
func (m *instantMemory) Host() []byte             { return m.host }

var words sync.Mutex

func (m *instantMemory) Load(at int) uint64 {
	words.Lock()
	defer words.Unlock()
	return *(*uint64)(unsafe.Pointer(&m.host[at]))
}

func (m *instantMemory) Reached(at int, value uint64) bool { return int64(m.Load(at)-value) >= 0 }

func (m *instantMemory) Store(at int, value uint64) {
	words.Lock()
	defer words.Unlock()
	*(*uint64)(unsafe.Pointer(&m.host[at])) = value
}

func (s *instantStream) Native() uintptr                    { return 0 }
func (s *instantStream) Copy(cuda.Ptr, cuda.Ptr, int) error { return nil }
func (s *instantStream) Wait(cuda.Event) error              { return nil }
func (s *instantStream) Done() (bool, error)                { return true, nil }
func (s *instantStream) Synchronize() error                 { return nil }
func (s *instantStream) Capture() (uint64, error)           { return 0, nil }
func (s *instantStream) Retain(func()) error                { return nil }
func (s *instantStream) Destroy() error                     { return nil }
func (s *instantStream) Launch(cuda.Function, int, int, []byte) error {
	return nil
}
func (s *instantStream) Words(ops []cuda.WordOp) error {
	for i := range ops {
		if !ops[i].Wait {
			(&instantMemory{s.of.words}).Store(int(ops[i].At), ops[i].Value)
		}
	}
	return nil
}

func (instantEvent) Record(cuda.Stream) error { return nil }
func (instantEvent) Done() (bool, error)      { return true, nil }
func (instantEvent) Destroy() error           { return nil }

// Enqueue, the device thread and Wait allocate nothing.
func TestNoAllocations(t *testing.T) {
	count := 100_000 // several pieces
	data := make([]float32, count)
	block := []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(data)), Count: count}}
	call := ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum, In: block, Out: block}
	allocatesNothing(t, [2][]*ccl.Call{{&call}, {&call}})
}

// Messages that are held back do not, either.
func TestNoAllocationsOfBatch(t *testing.T) {
	data := make([]byte, 1<<20) // several pieces
	block := []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(data)), Count: len(data)}}
	var calls [2][]*ccl.Call
	for rank := range calls {
		for range 2 {
			calls[rank] = append(calls[rank],
				&ccl.Call{Coll: dtype.Recv, Type: dtype.U8, Root: 1 - rank, Batch: 1, Out: block},
				&ccl.Call{Coll: dtype.Send, Type: dtype.U8, Root: 1 - rank, Batch: 1, In: block})
		}
	}
	allocatesNothing(t, calls)
}

// allocatesNothing has two ranks make some calls, of one batch, again and again.
func allocatesNothing(t *testing.T, calls [2][]*ccl.Call) {
	const ranks, rounds = 2, 400
	opts := ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: "staged"}
	node, comms, err := ccl.Local(context.Background(), ranks, opts)
	require.NoError(t, err)
	defer node.Close()
	var groups [ranks]*ccl.DeviceGroup
	for rank := range ranks {
		groups[rank], err = comms[rank].OnDevice(new(instant), nil)
		require.NoError(t, err)
	}
	var stream cuda.Stream = new(instantStream)
	ops := make([]*ccl.DeviceWork, 0, 8)
	step := func() {
		ops = ops[:0]
		for rank, g := range groups {
			for _, call := range calls[rank] {
				op, err := g.Enqueue(call, stream)
				require.NoError(t, err)
				ops = append(ops, op)
			}
			require.NoError(t, g.EndBatch(1))
		}
		for _, op := range ops {
			done, err := op.Wait(0)
			require.True(t, done)
			require.NoError(t, err)
			op.Free()
		}
	}
	for range 20 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(rounds, step))
}
