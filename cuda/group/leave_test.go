package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Ranks that close when their last call has ended do no harm to those that are behind.
func TestCloseInOrder(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	device := func(seed uint64) cudatest.Options {
		return cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, Devices: 2}
	}
	staged := ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: "staged"}
	for name, c := range map[string]struct {
		make  func(seed uint64) []*rank
		count int
	}{
		"windows":       {func(s uint64) []*rank { return machine(t, 4, device(s), overWindows, 256<<10) }, 20_000},
		"interpreted":   {func(s uint64) []*rank { return machine(t, 4, device(s), interpreted, 256<<10) }, 4000},
		"between hosts": {func(s uint64) []*rank { return hosts22(t, device(s), with(overWindows, "ring")) }, 20_000},
		"staged":        {func(s uint64) []*rank { return hosts22(t, device(s), staged) }, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				w := c.make(seed)
				for i, err := range each(len(w), func(i int) error {
					op, err := w[i].Enqueue(w[i].some(dtype.AllReduce, c.count), w[i].stream)
					if err != nil {
						return err
					}
					op.Join(w[i].stream)
					_, err = op.Wait(hang)
					op.Free()
					if err == nil {
						err = w[i].DeviceGroup.Close()
					}
					return err
				}) {
					require.NoError(t, err, "rank %d, seed %d", i, seed)
				}
			}
		})
	}
}

func hosts22(t *testing.T, device cudatest.Options, opts ccl.GroupOptions) []*rank {
	return network(t, networkOf(2, 2), device, opts, 256<<10)
}

// The root of a broadcast, which waits for nobody, may leave before another rank has come to it.
func TestRootLeavesFirst(t *testing.T) {
	for _, opts := range []ccl.GroupOptions{overWindows, interpreted} {
		device := quick
		device.Stuck, device.Devices = -1, 2
		w := machine(t, 2, device, opts, memory)
		w[1].driver.Hold(w[1].stream)
		var ops []*ccl.DeviceWork
		for _, r := range w {
			b := []ccl.Block{{Ptr: pointerOf(r.device.Ptr()), Count: 100}}
			call := &ccl.Call{Coll: dtype.Broadcast, Type: dtype.F32, Out: b}
			if r.Rank() == 0 {
				call.In = b
			}
			ops = append(ops, r.begin(t, call))
		}
		_, err := ops[0].Wait(hang)
		require.NoError(t, err)
		w[0].leave(t)
		for looks := 0; looks < 10; looks++ { // the device thread of rank 1 has looked whether rank 0 is there
			done, err := ops[1].Wait(30 * time.Millisecond)
			require.NoError(t, err)
			require.False(t, done)
		}
		w[1].driver.Release(w[1].stream)
		_, err = ops[1].Wait(hang)
		require.NoError(t, err)
		for _, op := range ops {
			op.Free()
		}
		require.NoError(t, w[1].ctx.Enter(false))
		require.NoError(t, w[1].stream.Synchronize())
		w[1].ctx.Leave()
		w[1].leave(t)
	}
}

// Ranks with factors of their own take the same way.
func TestInterpretedFactors(t *testing.T) {
	w := machine(t, 2, quick, interpreted, memory)
	var ops []*ccl.DeviceWork
	for i, r := range w {
		call := r.reduce(100)
		call.Op, call.Factor, call.Timeout = dtype.PremulSum, float64(1+i), 5*time.Second
		ops = append(ops, r.begin(t, call))
	}
	for _, op := range ops {
		_, err := op.Wait(hang)
		require.NoError(t, err)
		op.Free()
	}
	end(t, w)
}

// Blocks without elements come between short calls, of which a fast rank is ahead.
func TestInterpretedEmpty(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather} {
		for seed := range seeds {
			t.Run(fmt.Sprint(coll, " ", seed), func(t *testing.T) {
				device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, Devices: 2}
				w := machine(t, 2, device, interpreted, 256<<10)
				for _, err := range each(len(w), func(i int) (err error) {
					var op *ccl.DeviceWork
					for k := range 12 {
						lengths := [][2]int{{100, 100}, {100, 0}, {100, 100}, {0, 100}}[k%4]
						if coll == dtype.AllReduce {
							lengths[i] = lengths[1]
						}
						in, out := func(int) int { return lengths[i] }, func(b int) int { return lengths[b] }
						if coll == dtype.AllReduce {
							out = in
						}
						b := buffersOf(coll, dtype.F32, 2, i, 0, true, in, out)
						kind := ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum}
						call := b.call(kind, pointerOf(w[i].device.Ptr()), 4)
						call.Timeout = 5 * time.Second
						if op != nil {
							op.Free()
						}
						if op, err = w[i].Enqueue(call, w[i].stream); err != nil {
							return err
						}
						op.Join(w[i].stream)
					}
					defer op.Free()
					_, err = op.Wait(hang)
					return err
				}) {
					require.NoError(t, err)
				}
				end(t, w)
			})
		}
	}
}

// After so many operations that their positions look like what lets a stream go, a group that fails
// lets its streams go, too.
func TestAbortAfterManyOperations(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	for _, r := range w {
		r.Skip(1 << 30)
	}
	length := func(_, _ int) int { return 100 }
	same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum}, true, 1, length, length)
	op := w[0].begin(t, w[0].reduce(100))
	w[0].driver.Settle()
	w[0].Abort(fault.New(fault.Aborted, "the test ends it"))
	require.ErrorIs(t, w[0].fails(t, op), fault.Aborted) // and the stream of the caller has ended
	op.Free()
	bury(t, w)
}
