package group_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/group/share"
)

// makeArena makes an arena of its own for a rank, as if it were a process.
func (r *rank) makeArena(t testing.TB, driver cuda.Driver, device, bytes int) {
	ctx, err := driver.Retain(device)
	require.NoError(t, err)
	r.arena, err = share.NewArena(ctx, bytes)
	require.NoError(t, err)
}

// registered is memory in an arena.
type registered struct {
	cuda.Memory // nil
	arena       *share.Arena
	at          cuda.Ptr
}

func (m *registered) Ptr() cuda.Ptr { return m.at }
func (m *registered) Free() error   { return m.arena.Free(m.at) }

func (r *rank) inArena(bytes int) (cuda.Memory, error) {
	at, err := r.arena.Alloc(bytes)
	return &registered{arena: r.arena, at: at}, err
}

// lenders makes a device group as machine does, in which some ranks lend.
func lenders(t testing.TB, n int, device cudatest.Options, opts ccl.GroupOptions, memory int, lends []bool) []*rank {
	t.Helper()
	device.Apart = true
	driver := cudatest.New(device)
	t.Cleanup(driver.Close)
	drivers := slices.Repeat([]*cudatest.Driver{driver}, n)
	return ranksOnDevices(t, drivers, max(1, device.Devices), opts, memory, lends...)
}

func all(n int) []bool { return slices.Repeat([]bool{true}, n) }

// Every collective has the same bits if the ranks lend their buffers, whatever the operator, in
// place and not, on one device and on several.
func TestLendMatrix(t *testing.T) {
	for _, c := range []struct{ ranks, devices int }{{2, 1}, {3, 2}, {8, 1}} {
		if skipped(c.ranks) {
			continue
		}
		t.Run(fmt.Sprint(c.ranks, " ranks, ", c.devices, " devices"), func(t *testing.T) {
			t.Parallel()
			device := quick
			device.Devices = c.devices
			w := lenders(t, c.ranks, device, overWindows, memory, all(c.ranks))
			everyCall(t, w)
			for _, r := range w {
				require.Greater(t, r.Exposed(), uint64(10))
			}
			end(t, w)
		})
	}
}

// Calls of which several are in flight, each on the results of the ones before, in memory that all,
// or some ranks lend: the caller's stream goes on when nobody reads it any more.
func TestLendOrder(t *testing.T) {
	inOrder(t, func(t *testing.T, n int, seed uint64) []*rank {
		device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond}
		lends := make([]bool, n)
		for i := range lends {
			lends[i] = seed%4 == 0 || (seed+uint64(i))%2 == 0
		}
		return lenders(t, n, device, overWindows, 256<<10, lends)
	})
}

// Ranks that lend need not have the same number of pieces, nor any elements.
func TestLendUnequalBlocks(t *testing.T) {
	unequalBlocks(t, lenders(t, 3, quick, overWindows, memory, all(3)))
}

func TestLendLengths(t *testing.T) {
	lengths(t, lenders(t, 3, quick, overWindows, memory, []bool{true, false, true}))
}

// Any ranks have an arena, and any of their blocks lie in it, at any offset.
func TestLendAnything(t *testing.T) {
	inParts(t, 12, 8, func(t *testing.T, seeds iter.Seq[uint64]) {
		exposed := uint64(0)
		for seed := range seeds {
			exposed += lendAnything(t, seed)
		}
		require.Positive(t, exposed)
	})
}

// lendAnything makes calls and returns how many have lent anything.
func lendAnything(t *testing.T, seed uint64) (exposed uint64) {
	random64 := rand.New(rand.NewPCG(seed, 8))
	n := 2 + int(seed)%7
	lends := make([]bool, n)
	for i := range lends {
		lends[i] = seed%3 == 0 || random64.IntN(2) == 0
	}
	device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, Devices: 1 + int(seed)%2}
	const room = 1 << 20
	w := lenders(t, n, device, overWindows, room, lends)
	plain := make([]cuda.Memory, n) // outside of arenas
	for i, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		var err error
		plain[i], err = r.ctx.Alloc(room)
		require.NoError(t, err)
		r.ctx.Leave()
	}
	for call := range 6 {
		colls := dtype.Collectives()
		c := ccl.Call{Coll: colls[random64.IntN(len(colls))], Type: dtype.F32, Root: random64.IntN(n)}
		if c.Coll == dtype.Barrier {
			c.Coll = dtype.AllReduce
		}
		if c.Coll.Reduces() {
			c.Op = []dtype.Op{ccl.Sum, ccl.Avg, ccl.Max, dtype.PremulSum}[random64.IntN(4)]
			c.Factor = 0.7
		} else {
			c.Type = []dtype.Type{dtype.U8, dtype.F64, dtype.BF16}[random64.IntN(3)]
		}
		count := 1 + random64.IntN(500_000/n/c.Type.Size()) // in and out: less than room
		somewhere(t, w, plain, c, random64, seed*10+uint64(call), count)
	}
	for i, r := range w {
		exposed += r.Exposed()
		if !lends[i] {
			require.Zero(t, r.Exposed())
		}
	}
	for i, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		require.NoError(t, r.stream.Synchronize())
		require.NoError(t, plain[i].Free())
		r.ctx.Leave()
	}
	end(t, w)
	return exposed
}

// somewhere makes a call with each block in the rank's memory or outside of it, and compares the
// results with those of the processor. Then it overwrites everything.
func somewhere(t *testing.T, w []*rank, plain []cuda.Memory, c ccl.Call, random64 *rand.Rand, seed uint64, count int) {
	t.Helper()
	n, size := len(w), c.Type.Size()
	inPlace := random64.IntN(2) == 0
	what := fmt.Sprintf("seed %d: %v of %d %v (%v), %d ranks, in place %v", seed, c.Coll, count, c.Type, c.Op, n, inPlace)
	length := func(int) int { return count }
	type place struct {
		at, bytes int
		in        cuda.Memory
	}
	blocks, calls := make([][]place, n), make([]*ccl.Call, n)
	want := make([][]byte, n)
	shift := size * random64.IntN(20)
	for i, r := range w {
		b := buffersOf(c.Coll, c.Type, n, i, c.Root, inPlace, length, length)
		want[i] = random(seed+uint64(i), b.bytes+8)
		calls[i] = b.call(c, unsafe.Pointer(&want[i][0]), size)
		memories := map[int]cuda.Memory{}
		for _, at := range slices.Concat(b.atIn, b.atOut) {
			if memories[at] == nil {
				memories[at] = plain[i]
				if random64.IntN(3) > 0 {
					memories[at] = r.device
				}
				blocks[i] = append(blocks[i], place{at, count * size, memories[at]})
			}
		}
		for _, p := range blocks[i] {
			r.upload(t, p.in.Ptr()+cuda.Ptr(p.at+shift), p.at, want[i][p.at:p.at+p.bytes])
		}
	}
	for _, err := range each(n, func(i int) error { return w[i].cpu.Do(context.Background(), calls[i]) }) {
		require.NoError(t, err, what)
	}
	for _, err := range each(n, func(i int) error {
		onDevice := *calls[i]
		onDevice.In, onDevice.Out = nil, nil
		moved := func(b ccl.Block) ccl.Block {
			at := int(uintptr(b.Ptr) - uintptr(unsafe.Pointer(&want[i][0])))
			k := slices.IndexFunc(blocks[i], func(p place) bool { return p.at == at })
			return ccl.Block{Ptr: pointerOf(blocks[i][k].in.Ptr() + cuda.Ptr(at+shift)), Count: b.Count}
		}
		for _, b := range calls[i].In {
			onDevice.In = append(onDevice.In, moved(b))
		}
		for _, b := range calls[i].Out {
			onDevice.Out = append(onDevice.Out, moved(b))
		}
		return w[i].issue(&onDevice)
	}) {
		require.NoError(t, err, what)
	}
	for i, r := range w {
		for _, p := range blocks[i] {
			r.download(t, p.at, p.in.Ptr()+cuda.Ptr(p.at+shift), p.bytes)
		}
	}
	for i, r := range w {
		for _, p := range blocks[i] {
			got := r.get(t, p.at, p.bytes)
			require.True(t, string(got) == string(want[i][p.at:p.at+p.bytes]), "%s, rank %d, block at %d: %s",
				what, i, p.at, firstDifference(got, want[i][p.at:]))
		}
	}
}

// upload copies bytes to an address of the device, download back, in the caller's stream.
func (r *rank) upload(t testing.TB, to cuda.Ptr, at int, data []byte) {
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	copy(r.host.Host()[at:], data)
	r.observe(at, len(data), true)
	require.NoError(t, r.stream.Copy(to, r.host.Ptr()+cuda.Ptr(at), len(data)))
}

func (r *rank) download(t testing.TB, at int, from cuda.Ptr, n int) {
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	require.NoError(t, r.stream.Copy(r.host.Ptr()+cuda.Ptr(at), from, n))
}

// Whatever a peer writes as a place, nothing outside of its arena is read: then it is the window,
// whose contents are undefined, and nobody fails.
func TestLendHostilePlace(t *testing.T) {
	const count, room = 20_000, 1 << 20
	for name, c := range map[string]struct {
		by    int
		right bool
	}{
		"the truth":            {0, true},
		"elsewhere in it":      {4 * count, false},
		"up to its end":        {2*room - 4*count, false},
		"behind its end":       {2*room - 4*count + 4, false},
		"in other memory":      {1 << 30, false},
		"far away":             {1<<40 - 2*room, false},
		"more than a place is": {1 << 40, true}, // counted from the beginning again
	} {
		t.Run(name, func(t *testing.T) {
			w := lenders(t, 2, quick, overWindows, room, all(2))
			w[1].Lie(c.by)
			data := random(1, 4*count)
			w[1].put(t, 0, data)
			for i, r := range w {
				length := func(int) int { return count }
				b := buffersOf(dtype.Broadcast, dtype.F32, 2, i, 1, true, length, length)
				call := b.call(ccl.Call{Coll: dtype.Broadcast, Type: dtype.F32, Root: 1}, pointerOf(r.device.Ptr()), 4)
				require.NoError(t, r.issue(call))
			}
			w[0].fetch(t, 0, 4*count)
			require.Equal(t, c.right, bytes.Equal(data, w[0].get(t, 0, 4*count)))
			require.EqualValues(t, 1, w[1].Exposed())
			end(t, w)
		})
	}
}

// The root of a broadcast that lends its tensor does not end the call before the others have read
// it; one that copies it does.
func TestLendDrains(t *testing.T) {
	const count = 20_000
	for root := range 2 {
		w := lenders(t, 2, cudatest.Options{Delay: -1, Stuck: -1}, overWindows, memory, []bool{true, false})
		other := w[1-root]
		other.driver.Hold(other.stream)
		ops := make([]*ccl.DeviceWork, 2)
		for i, r := range w {
			length := func(int) int { return count }
			b := buffersOf(dtype.Broadcast, dtype.F32, 2, i, root, true, length, length)
			call := b.call(ccl.Call{Coll: dtype.Broadcast, Type: dtype.F32, Root: root}, pointerOf(r.device.Ptr()), 4)
			ops[i] = r.begin(t, call)
		}
		other.driver.Settle()
		if root == 1 {
			ended, err := ops[root].Wait(hang)
			require.True(t, ended)
			require.NoError(t, err)
		}
		for range 3 {
			other.driver.Settle()
			ended, err := ops[root].Done()
			require.NoError(t, err)
			require.Equal(t, root == 1, ended)
		}
		other.driver.Release(other.stream)
		for _, op := range ops {
			ended, err := op.Wait(hang)
			require.True(t, ended)
			require.NoError(t, err)
			op.Free()
		}
		end(t, w)
	}
}

// A rank that lends and waits for a peer is let go when that fails or leaves, or is late, and the
// error names it.
func TestLendFailures(t *testing.T) {
	const count = 20_000
	for name, c := range map[string]struct {
		fail func(w []*rank)
		want string
	}{
		"aborts":  {func(w []*rank) { w[1].Abort(fault.New(fault.Aborted, "that is enough")) }, "that is enough"},
		"is late": {func([]*rank) {}, "rank 1"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := overWindows
			opts.Timeout = 300 * time.Millisecond
			w := lenders(t, 2, cudatest.Options{Delay: -1, Stuck: -1}, opts, memory, all(2))
			length := func(int) int { return count }
			b := buffersOf(dtype.Broadcast, dtype.F32, 2, 0, 0, true, length, length)
			call := b.call(ccl.Call{Coll: dtype.Broadcast, Type: dtype.F32}, pointerOf(w[0].device.Ptr()), 4)
			op := w[0].begin(t, call)
			c.fail(w)
			require.ErrorContains(t, w[0].fails(t, op), c.want)
			op.Free()
			bury(t, w)
		})
	}
}

// Where a call to the driver fails while ranks with arenas join, or while they lend, all get an
// error, and everything is given back.
func TestLendEnqueueFails(t *testing.T) {
	for _, call := range []string{"cuMemcpyAsync", "cuStreamBatchMemOp", "cuStreamWaitEvent", "cuEventRecord",
		"cuLaunchKernelEx"} {
		t.Run(call, func(t *testing.T) {
			w := lenders(t, 3, quick, overWindows, memory, all(3))
			w[1].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: 3, Code: 2}}})
			for range 5 {
				for _, r := range w {
					if op, err := r.Enqueue(r.reduce(100_000), r.stream); err == nil {
						op.Join(r.stream)
						op.Free()
					}
				}
			}
			fails := w[1].driver.Calls(call) >= 3
			w[1].driver.SetFaults(cudatest.Faults{})
			for _, r := range w {
				if fails {
					require.Eventually(t, func() bool { return r.Failure() != nil }, hang, time.Millisecond)
					require.ErrorContains(t, r.Failure(), call)
				}
			}
			bury(t, w)
		})
	}
}

// An arena gives out memory until there is no more, and says which option would help.
func TestArena(t *testing.T) {
	const size = 1 << 20
	driver := cudatest.New(quick)
	defer driver.Close()
	ctx, err := driver.Retain(0)
	require.NoError(t, err)
	a, err := share.NewArena(ctx, size)
	require.NoError(t, err)
	first, err := a.Alloc(1)
	require.NoError(t, err)
	second, err := a.Alloc(size - 512)
	require.NoError(t, err)
	require.Equal(t, first+512, second)
	require.Equal(t, size, a.InUse())
	_, err = a.Alloc(1)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "GOCCL_CUDA_REGISTERED")
	for _, n := range []int{0, -1, size + 1} {
		_, err = a.Alloc(n)
		require.ErrorIs(t, err, fault.Invalid)
	}
	require.ErrorIs(t, a.Free(first+1), fault.Invalid)
	require.NoError(t, a.Free(first))
	require.ErrorIs(t, a.Free(first), fault.Invalid)
	again, err := a.Alloc(512)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NoError(t, a.Free(again))
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	_, err = a.Alloc(1)
	require.ErrorIs(t, err, fault.Closed)
	require.NotEmpty(t, driver.Leaks(), "what was not freed stays")
	require.NoError(t, a.Free(second))
	require.Empty(t, driver.Leaks())
	driver.Check(t)
}

// An arena that cannot be shared is an error, and everything can be given back.
func TestLendFails(t *testing.T) {
	driver := cudatest.New(quick)
	defer driver.Close()
	ctx, err := driver.Retain(0)
	require.NoError(t, err)
	window, err := ccl.NewDeviceWindow(ctx, overWindows, 2)
	require.NoError(t, err)
	other, err := driver.Retain(0)
	require.NoError(t, err)
	arena, err := share.NewArena(other, 1<<20)
	require.NoError(t, err)
	shared := len(window.Descriptors())
	driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{
		{Call: "cuMemExportToShareableHandle", Nth: 1, Code: 2}}})
	require.ErrorContains(t, window.Lend(arena), "cuMemExportToShareableHandle")
	require.Len(t, window.Descriptors(), shared)
	require.NoError(t, window.Lend(arena))
	require.Len(t, window.Descriptors(), shared+1)
	require.NoError(t, window.Free())
	require.NoError(t, arena.Close())
	require.NoError(t, ctx.Release())
	require.Empty(t, driver.Leaks())
	driver.Check(t)
}

// A process has one arena of each device, which groups of its ranks share; without the option it
// has none.
func TestDeviceArena(t *testing.T) {
	node, err := ccl.NewNode(ccl.NodeOptions{})
	require.NoError(t, err)
	driver := cudatest.New(cudatest.Options{Delay: -1, Devices: 2})
	defer driver.Close()
	none, err := node.DeviceArena(driver, 0, &ccl.NodeOptions{})
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = node.DeviceArena(driver, 0, &ccl.NodeOptions{CudaRegistered: 2 << 30})
	require.ErrorContains(t, err, "GOCCL_CUDA_REGISTERED")
	require.ErrorContains(t, err, "CUDA_ERROR_OUT_OF_MEMORY")
	first, err := node.DeviceArena(driver, 0, &ccl.NodeOptions{CudaRegistered: 4 << 20})
	require.NoError(t, err)
	again, err := node.DeviceArena(driver, 0, &ccl.NodeOptions{CudaRegistered: 8 << 20})
	require.NoError(t, err)
	require.Same(t, first, again)
	second, err := node.DeviceArena(driver, 1, &ccl.NodeOptions{CudaRegistered: 4 << 20})
	require.NoError(t, err)
	require.NotSame(t, first, second)
	require.NoError(t, node.Close())
	_, err = node.DeviceArena(driver, 1, &ccl.NodeOptions{CudaRegistered: 4 << 20})
	require.ErrorIs(t, err, fault.Closed)
	require.Empty(t, driver.Leaks())
	driver.Check(t)
}
