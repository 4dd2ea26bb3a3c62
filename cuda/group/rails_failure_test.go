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

// rails makes a group of four ranks on two hosts.
func rails(t testing.TB, device cudatest.Options, opts ccl.GroupOptions) []*rank {
	t.Helper()
	opts.CudaRoute = "windows"
	return network(t, networkOf(2, 2), device, opts, memory)
}

// allFail checks that all calls fail, and returns the errors.
func allFail(t *testing.T, w []*rank, ops []*ccl.DeviceWork) []error {
	t.Helper()
	errs := make([]error, len(ops))
	for i, op := range ops {
		if op != nil {
			errs[i] = w[i].fails(t, op)
			op.Free()
		}
	}
	return errs
}

// A rank that does not call is named by all, whichever host they are on, and so is one whose device
// does not come to the call.
func TestRailsTimeout(t *testing.T) {
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprint(coll, ", its device is held: ", held), func(t *testing.T) {
				t.Parallel()
				opts := small()
				opts.Timeout = 500 * time.Millisecond
				w := rails(t, cudatest.Options{Delay: -1, Stuck: -1}, opts)
				ops := make([]*ccl.DeviceWork, len(w))
				for i, r := range w {
					if i == 3 && held {
						r.driver.Hold(r.stream)
					}
					if i < 3 || held {
						ops[i] = r.begin(t, r.some(coll, 20_000))
					}
				}
				if held {
					_, err := ops[3].Wait(hang)
					require.ErrorContains(t, err, "the stream of this rank has not come to the call")
					w[3].driver.Release(w[3].stream)
				}
				for i, err := range allFail(t, w, ops) {
					if err == nil {
						continue
					}
					require.ErrorIs(t, err, fault.Timeout, "rank %d", i)
					require.ErrorContains(t, err, "rank 3", "rank %d", i)
					require.ErrorContains(t, err, coll.String(), "rank %d", i)
				}
				bury(t, w)
			})
		}
	}
}

// some makes a call of a collective, in place.
func (r *rank) some(coll dtype.Collective, count int) *ccl.Call {
	length := func(int) int { return count }
	b := buffersOf(coll, dtype.F32, r.Size(), r.Rank(), 0, true, length, length)
	return b.call(ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum}, pointerOf(r.device.Ptr()), 4)
}

// Hosts whose ranks call different things find out, all ranks.
func TestRailsMismatch(t *testing.T) {
	for name, calls := range map[string][2]func(r *rank) *ccl.Call{
		"lengths": {func(r *rank) *ccl.Call { return r.some(dtype.AllReduce, 1000) },
			func(r *rank) *ccl.Call { return r.some(dtype.AllReduce, 1004) }},
		"operators": {func(r *rank) *ccl.Call { return r.some(dtype.AllReduce, 1000) },
			func(r *rank) *ccl.Call { c := r.some(dtype.AllReduce, 1000); c.Op = ccl.Max; return c }},
		"pieces": {func(r *rank) *ccl.Call { return r.some(dtype.AllReduce, 100_000) },
			func(r *rank) *ccl.Call { return r.some(dtype.AllReduce, 200_000) }},
		"collectives": {func(r *rank) *ccl.Call { return r.some(dtype.AllGather, 1000) },
			func(r *rank) *ccl.Call { return r.some(dtype.ReduceScatter, 1000) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rails(t, quick, small())
			ops := make([]*ccl.DeviceWork, len(w))
			for i, r := range w {
				var err error
				if ops[i], err = r.Enqueue(calls[i/2](r), r.stream); err == nil {
					ops[i].Join(r.stream)
				}
			}
			for i, err := range allFail(t, w, ops) {
				if err != nil {
					require.ErrorIs(t, err, fault.Mismatch, "rank %d", i)
					require.ErrorContains(t, err, calls[i/2](w[i]).String(), "rank %d", i)
				}
			}
			w[0].stays(t, fault.Mismatch)
			bury(t, w)
		})
	}
}

// One rank that calls something else than its host is found there.
func TestRailsMismatchWithinHost(t *testing.T) {
	w := rails(t, quick, small())
	ops := make([]*ccl.DeviceWork, len(w))
	for i, r := range w {
		ops[i] = r.begin(t, r.some(dtype.AllReduce, 1000+4*(i%2)))
	}
	for _, err := range allFail(t, w, ops) {
		require.ErrorIs(t, err, fault.Mismatch)
	}
	bury(t, w)
}

// An abort, the loss of a device, and a rank that leaves end the call on all ranks, and let all
// streams go, however long it is.
func TestRailsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, r *rank)
		want string
	}{
		"abort": {func(_ *testing.T, r *rank) { r.Abort(fault.New(fault.Aborted, "enough")) }, "enough"},
		"lost":  {func(_ *testing.T, r *rank) { r.driver.Lose(0) }, "CUDA_ERROR_LAUNCH_FAILED"},
		"close": {func(t *testing.T, r *rank) { require.NoError(t, r.DeviceGroup.Close()) }, "rank 3"},
	} {
		for _, calls := range []int{1, 3} {
			t.Run(fmt.Sprint(name, ", ", calls, " calls"), func(t *testing.T) {
				t.Parallel()
				w := rails(t, cudatest.Options{Delay: -1, Stuck: -1}, small())
				ops := make([]*ccl.DeviceWork, len(w))
				for i, r := range w {
					for range calls {
						if i < 3 {
							ops[i] = r.begin(t, r.some(dtype.AllReduce, 200_000))
						}
					}
				}
				time.Sleep(5 * time.Millisecond) // any time is right
				begun := time.Now()
				c.end(t, w[3])
				for i, op := range ops[:3] {
					if name == "lost" && i == 2 { // on the same device
						continue
					}
					require.ErrorContains(t, w[i].fails(t, op), c.want, "rank %d", i)
				}
				require.Less(t, time.Since(begun), 10*time.Second)
			})
		}
	}
}

// A call to the driver that fails while something is enqueued ends the group, and all streams go
// on.
func TestRailsEnqueueFails(t *testing.T) {
	for _, call := range []string{"cuMemcpyAsync", "cuStreamBatchMemOp", "cuStreamWaitEvent", "cuEventRecord",
		"cuLaunchKernelEx"} {
		for _, nth := range []int{1, 4, 9, 20} {
			if testing.Short() && nth != 4 && nth != 20 {
				continue
			}
			t.Run(fmt.Sprint(call, " ", nth), func(t *testing.T) {
				t.Parallel()
				w := rails(t, quick, small())
				w[1].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}})
				for range 3 {
					for _, r := range w {
						if op, err := r.Enqueue(r.some(dtype.AllReduce, 100_000), r.stream); err == nil {
							op.Join(r.stream)
							op.Free()
						}
					}
				}
				w[1].driver.SetFaults(cudatest.Faults{})
				for _, r := range w {
					require.Eventually(t, func() bool { return r.Failure() != nil }, hang, time.Millisecond)
					require.ErrorContains(t, r.Failure(), call)
				}
				bury(t, w)
			})
		}
	}
}

// Calls that have messages between hosts cannot be part of a CUDA graph, which the error says.
func TestRailsAreNotCaptured(t *testing.T) {
	w := rails(t, quick, small())
	for i, r := range w {
		err := r.once(func() error { return r.enqueue(r.some(dtype.AllReduce, 100)) })
		require.ErrorIs(t, err, fault.NotSupported, "rank %d", i)
		require.ErrorContains(t, err, "the ranks are on 2 hosts")
	}
	length := func(_, _ int) int { return 1000 }
	same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum}, true, 1, length, length)
	end(t, w)
}

// Tags that the messages of programs have are refused, and all others can be used beside them.
func TestRailsTags(t *testing.T) {
	w := rails(t, quick, small())
	_, err := w[0].Enqueue(w[0].message(dtype.Send, 2, 0, 10, 1<<31), w[0].stream)
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "tags of a device group are below 2147483648")
	for round := range 3 {
		for _, err := range each(4, func(i int) error {
			coll := []dtype.Collective{dtype.Send, dtype.Recv}[i/2]
			if err := w[i].issue(w[i].message(coll, (i+2)%4, 0, 300_000, 1<<31-1)); err != nil {
				return err
			}
			return w[i].issue(w[i].some(dtype.AllReduce, 50_000+round))
		}) {
			require.NoError(t, err)
		}
	}
	end(t, w)
}
