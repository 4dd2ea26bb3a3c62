package group_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// reduce makes an all_reduce of the first elements of a rank's device memory, in place.
func (r *rank) reduce(count int) *ccl.Call {
	block := []ccl.Block{{Ptr: pointerOf(r.device.Ptr()), Count: count}}
	return &ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum, In: block, Out: block}
}

// fails waits until a call has failed, and until the caller's stream, which has joined it, has
// ended.
func (r *rank) fails(t testing.TB, op *ccl.DeviceWork) error {
	t.Helper()
	done, err := op.Wait(hang)
	require.True(t, done)
	require.Error(t, err)
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	begin := time.Now()
	for {
		ended, lost := r.stream.Done()
		if ended || cuda.Lost(lost) {
			return err
		}
		require.NoError(t, lost)
		require.Less(t, time.Since(begin), hang)
		time.Sleep(time.Millisecond)
	}
}

// begin enqueues a call and joins it.
func (r *rank) begin(t testing.TB, call *ccl.Call) *ccl.DeviceWork {
	t.Helper()
	op, err := r.Enqueue(call, r.stream)
	require.NoError(t, err)
	op.Join(r.stream) // returns the error where it is known already, and joins all the same
	return op
}

// stays checks that a group that has ended refuses calls, for the same reason.
func (r *rank) stays(t testing.TB, code fault.Code) {
	t.Helper()
	_, err := r.Enqueue(r.reduce(10), r.stream)
	require.ErrorIs(t, err, code)
	require.ErrorIs(t, r.Failure(), code)
}

// watch returns what is closed at the end of an Op.
func watch(op *ccl.DeviceWork) chan struct{} {
	ended := make(chan struct{})
	if !op.OnEnd(func() { close(ended) }) {
		close(ended)
	}
	return ended
}

// The end that counts is that on the device, not that of the processor; a failure is one, too.
func TestOnEnd(t *testing.T) {
	ranks := world(t, 2, cudatest.Options{}, small())
	defer bury(t, ranks)
	for _, fails := range []bool{false, true} {
		r := ranks[0]
		r.driver.Hold(r.stream)
		var ops [2]*ccl.DeviceWork
		for i, r := range ranks {
			ops[i] = r.begin(t, r.reduce(1000))
		}
		ended := [2]chan struct{}{watch(ops[0]), watch(ops[1])}
		for range 3 { // the call waits for what the caller's stream has before it
			r.driver.Settle()
			done, err := ops[0].Done()
			require.False(t, done, err)
		}
		if fails {
			ranks[1].Abort(fault.New(fault.Aborted, "because"))
		}
		r.driver.Release(r.stream)
		for i := range ranks {
			select {
			case <-ended[i]:
			case <-time.After(hang):
				require.Fail(t, "nobody has seen the end", "rank %d", i)
			}
			ops[i].Free()
		}
	}
}

// The next call finds out that a device was lost while nothing was in flight; the others are told.
func TestLostBetweenCalls(t *testing.T) {
	ranks := world(t, 2, cudatest.Options{Delay: -1}, small())
	op := ranks[0].begin(t, ranks[0].reduce(10))
	ranks[1].driver.Lose(0)
	_, err := ranks[1].Enqueue(ranks[1].reduce(10), ranks[1].stream)
	require.ErrorContains(t, err, "rank 1 of 2: all_reduce of 10 x f32")
	require.True(t, cuda.Lost(err), err)
	err = ranks[0].fails(t, op)
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, "CUDA_ERROR_LAUNCH_FAILED")
	op.Free()
}

func small() ccl.GroupOptions { return ccl.GroupOptions{CudaBuffSize: 256 << 10} }

func TestDeviceLacks(t *testing.T) {
	for _, c := range []struct {
		faults cudatest.Faults
		want   string
	}{
		{cudatest.Faults{NoWords: true}, "device 0 (memory of the host): its streams cannot wait for memory"},
		{cudatest.Faults{NoRegister: true}, "device 0 (memory of the host): memory of the host cannot be registered"},
	} {
		node, comms, err := ccl.Local(context.Background(), 1, ccl.GroupOptions{})
		require.NoError(t, err)
		driver := cudatest.New(cudatest.Options{Faults: c.faults})
		device, err := driver.Retain(0)
		require.NoError(t, err)
		_, err = comms[0].OnDevice(device, nil)
		require.ErrorIs(t, err, fault.NotSupported)
		require.ErrorContains(t, err, c.want)
		require.NoError(t, device.Release())
		driver.Check(t)
		driver.Close()
		require.NoError(t, node.Close())
	}
}

// Where a call to the driver fails while the group is made, what was made is given back.
func TestMakingFails(t *testing.T) {
	for _, call := range []string{"cuMemHostRegister", "cuStreamCreateWithPriority", "cuEventCreate"} {
		for nth := 1; nth < 8; nth += 3 {
			node, comms, err := ccl.Local(context.Background(), 2, ccl.GroupOptions{CudaRoute: "staged"})
			require.NoError(t, err)
			driver := cudatest.New(cudatest.Options{Faults: cudatest.Faults{
				Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}}})
			device, err := driver.Retain(0)
			require.NoError(t, err)
			if _, err = comms[0].OnDevice(device, nil); driver.Calls(call) < nth {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, call)
			require.NoError(t, device.Release())
			driver.Check(t)
			require.Empty(t, driver.Leaks())
			driver.Close()
			require.NoError(t, node.Close())
		}
	}
}

// Where a call to the driver fails while something is enqueued, every rank gets an error that names
// the rank and the call, and all streams go on.
func TestEnqueueFails(t *testing.T) {
	for _, call := range []string{"cuMemcpyAsync", "cuStreamBatchMemOp", "cuStreamWaitEvent", "cuEventRecord"} {
		for _, nth := range []int{1, 2, 5} {
			t.Run(fmt.Sprint(call, " ", nth), func(t *testing.T) {
				w := world(t, 3, cudatest.Options{Delay: -1}, small())
				w[1].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}})
				ops := make([]*ccl.DeviceWork, 3)
				ops[0] = w[0].begin(t, w[0].reduce(100_000))
				_, err := w[1].Enqueue(w[1].reduce(100_000), w[1].stream)
				require.ErrorIs(t, err, fault.System)
				require.ErrorContains(t, err, call)
				require.ErrorContains(t, err, "CUDA_ERROR_OUT_OF_MEMORY")
				var cause *cuda.Error
				require.True(t, errors.As(err, &cause))
				if op, err := w[2].Enqueue(w[2].reduce(100_000), w[2].stream); err == nil {
					ops[2] = op
					op.Join(w[2].stream)
				}
				for i, op := range ops {
					if op == nil {
						continue
					}
					err := w[i].fails(t, op)
					require.ErrorContains(t, err, call)
					require.ErrorContains(t, err, "rank 1")
				}
				for _, r := range w {
					r.stays(t, fault.System)
				}
				bury(t, w)
			})
		}
	}
}

// A device that is lost is noticed although nobody asks it for anything.
func TestDeviceLost(t *testing.T) {
	w := world(t, 2, cudatest.Options{Delay: -1}, small())
	w[1].driver.Hold(w[1].stream)
	ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(1000)), w[1].begin(t, w[1].reduce(1000))}
	begin := time.Now()
	w[1].driver.Lose(0)
	for i, op := range ops {
		err := w[i].fails(t, op)
		require.ErrorContains(t, err, "CUDA_ERROR_LAUNCH_FAILED")
		require.ErrorContains(t, err, "all_reduce of 1000 x f32 (sum), seq 1")
	}
	require.Less(t, time.Since(begin), 5*time.Second)
}

// Abort lets the streams go, at once and everywhere.
func TestAbort(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		w := world(t, 3, cudatest.Options{Delay: -1}, small())
		ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(200_000)), w[1].begin(t, w[1].reduce(200_000))}
		w[0].Abort(fault.New(fault.Aborted, "that is enough"))
		for i, op := range ops {
			err := w[i].fails(t, op)
			require.ErrorContains(t, err, "that is enough")
			require.Error(t, op.Join(w[i].stream))
			op.Free()
		}
		w[0].stays(t, fault.Aborted)
		bury(t, w)
	})
}

// A rank that does not call is named by those that wait for it.
func TestTimeout(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		options := small()
		options.Timeout = 300 * time.Millisecond
		w := world(t, 3, cudatest.Options{Delay: -1}, options)
		ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(200_000)), w[1].begin(t, w[1].reduce(200_000))}
		for i, op := range ops {
			err := w[i].fails(t, op)
			require.ErrorIs(t, err, fault.Timeout)
			require.ErrorContains(t, err, "rank 2")
			require.ErrorContains(t, err, "all_reduce of 200000 x f32 (sum), seq 1")
			op.Free()
		}
		w[0].stays(t, fault.Timeout)
		bury(t, w)
	})
}

// A rank whose device does not come to the call names itself, and so do the others.
func TestDeviceIsLate(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		options := small()
		options.Timeout = 300 * time.Millisecond
		w := world(t, 2, cudatest.Options{Delay: -1, Stuck: -1}, options)
		w[1].driver.Hold(w[1].stream)
		ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(1000)), w[1].begin(t, w[1].reduce(1000))}
		_, err := ops[1].Wait(hang)
		require.ErrorIs(t, err, fault.Timeout)
		require.ErrorContains(t, err, "the stream of this rank has not come to the call on device 0")
		err = w[0].fails(t, ops[0])
		require.ErrorIs(t, err, fault.Timeout)
		require.ErrorContains(t, err, "rank 1")
		w[1].driver.Release(w[1].stream)
		for _, op := range ops {
			op.Free()
		}
		bury(t, w)
	})
}

// Calls that differ are found, also where their pieces do not.
func TestMismatch(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		for _, counts := range [][2]int{{1000, 1001}, {100_000, 200_000}} {
			w := world(t, 2, cudatest.Options{Delay: -1}, small())
			ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(counts[0])), w[1].begin(t, w[1].reduce(counts[1]))}
			for i, op := range ops {
				err := w[i].fails(t, op)
				require.ErrorIs(t, err, fault.Mismatch, "%v", counts)
				require.ErrorContains(t, err, fmt.Sprintf("all_reduce of %d x f32 (sum), seq 1", counts[i]))
				op.Free()
			}
			bury(t, w)
		}
	})
}

// Enqueue, Join, Done and Free return while the caller's stream is busy.
func TestNothingWaits(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		w := world(t, 2, cudatest.Options{Delay: -1, Stuck: -1}, small())
		for _, r := range w {
			r.driver.Hold(r.stream)
		}
		const calls = 30
		var ops []*ccl.DeviceWork
		for range calls {
			for _, r := range w {
				op := r.begin(t, r.reduce(20_000))
				done, err := op.Done()
				require.False(t, done)
				require.NoError(t, err)
				ops = append(ops, op)
			}
		}
		for _, r := range w {
			r.driver.Release(r.stream)
		}
		for _, op := range ops {
			done, err := op.Wait(hang)
			require.True(t, done)
			require.NoError(t, err)
			op.Free()
		}
		end(t, w)
	})
}

// Invalid calls are refused before anything is enqueued.
func TestInvalidCalls(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		w := world(t, 2, quick, small())
		overlapping := w[0].reduce(100)
		overlapping.Out = []ccl.Block{{Ptr: pointerOf(w[0].device.Ptr() + 8), Count: 100}}
		unreducible := w[0].reduce(100)
		unreducible.Op = ccl.BAnd
		toNobody := w[0].message(dtype.Send, 2, 0, 1, 0)
		for _, call := range []*ccl.Call{{Coll: dtype.AllReduce}, overlapping, unreducible, toNobody} {
			_, err := w[0].Enqueue(call, w[0].stream)
			require.Error(t, err)
		}
		require.Nil(t, w[0].Failure())
		length := func(_, _ int) int { return 1000 }
		same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum}, true, 1, length, length)
		end(t, w)
	})
}

// Closing a group that waits for its peers lets its streams go.
func TestCloseWhilePending(t *testing.T) {
	bothRoutes(t, func(t *testing.T, world maker) {
		w := world(t, 2, quick, small())
		op := w[0].begin(t, w[0].reduce(500_000))
		require.NoError(t, w[0].DeviceGroup.Close())
		_, err := op.Wait(hang)
		require.ErrorIs(t, err, fault.Closed)
		_, err = w[0].Enqueue(w[0].reduce(10), w[0].stream)
		require.ErrorIs(t, err, fault.Closed)
	})
}
