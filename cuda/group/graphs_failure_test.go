package group_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Whichever call to the driver fails in a capture, no rank waits for another, and all ranks go on
// or none does.
func TestCaptureFails(t *testing.T) {
	for _, call := range []string{"cuCtxPushCurrent", "cuStreamGetCaptureInfo", "cuUserObjectCreate",
		"cuGraphRetainUserObject", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernelEx",
		"cuMemcpyAsync", "cuStreamBatchMemOp"} {
		t.Run(call, func(t *testing.T) {
			for nth := 1; nth < 4 && captureFails(t, call, nth); nth += 2 {
			}
		})
	}
}

func captureFails(t *testing.T, call string, nth int) (more bool) {
	w := machine(t, 2, cudatest.Options{Delay: -1}, overWindows, memory)
	reduce := func(r *rank, count int) error {
		call := r.reduce(count)
		call.Timeout = 100 * time.Millisecond
		return r.enqueue(call)
	}
	made := make([]*cudatest.Graph, 2)
	w[0].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}})
	errs := each(2, func(i int) (err error) {
		made[i], err = w[i].graph(func() error {
			if err := reduce(w[i], 1000); err != nil {
				return err
			}
			return reduce(w[i], 50_000)
		})
		return err
	})
	more = w[0].driver.Calls(call) >= nth
	w[0].driver.SetFaults(cudatest.Faults{})
	if errs[0] == nil && errs[1] == nil {
		launch(t, w, made)
		destroy(t, w, made)
		end(t, w)
		return more
	}
	for i, r := range w { // a rank that has not failed yet learns it
		if call == "cuEventCreate" && errs[i] != nil {
			require.NotNil(t, r.Failure(), "its peer has captured the call")
		}
		if op, err := r.Enqueue(r.reduce(10), r.stream); err == nil {
			op.Join(r.stream)
			op.Free()
		}
	}
	for _, r := range w {
		r.ends(t)
	}
	destroy(t, w, made)
	w[0].driver.Settle()
	bury(t, w)
	return more
}

// Whatever ends the group of a rank that waits for the others in a capture, it does not wait
// longer.
func TestCaptureEnds(t *testing.T) {
	for name, ends := range map[string]func(w []*rank){
		"abort":       func(w []*rank) { w[0].Abort(fault.New(fault.Aborted, "enough")) },
		"close":       func(w []*rank) { w[0].DeviceGroup.Close() },
		"peer aborts": func(w []*rank) { w[1].Abort(fault.New(fault.Aborted, "enough")) },
		"peer closes": func(w []*rank) { w[1].DeviceGroup.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			w := machine(t, 2, quick, overWindows, memory)
			ended := make(chan error)
			go func() {
				_, err := w[0].graph(func() error { return w[0].enqueue(w[0].reduce(1000)) })
				ended <- err
			}()
			time.Sleep(20 * time.Millisecond)
			over := make(chan bool)
			go func() { ends(w); close(over) }()
			for range 2 {
				select {
				case err := <-ended:
					require.Error(t, err)
					ended = nil
				case <-over:
					over = nil
				case <-time.After(5 * time.Second):
					w[0].Abort(fault.New(fault.Aborted, "the test"))
					t.Fatal("it waits")
				}
			}
			for _, r := range w {
				r.release(t)
			}
			for _, r := range w {
				require.NoError(t, r.DeviceGroup.Close())
			}
			require.Empty(t, w[0].driver.Leaks())
		})
	}
}

// Replays that were launched before a group was closed are let go after it, too, if it had failed.
func TestGraphClosedAfterFailure(t *testing.T) {
	w, graph := replaying(t, overWindows)
	w[1].Abort(fault.New(fault.Aborted, "enough"))
	w[0].ends(t)
	w[0].driver.Hold(w[0].stream)
	for range 3 {
		require.NoError(t, w[0].launch(graph[0]))
	}
	for _, r := range w {
		require.NoError(t, r.DeviceGroup.Close())
	}
	w[0].driver.Release(w[0].stream)
	for _, r := range w {
		r.ends(t)
		r.release(t)
	}
	destroy(t, w, graph)
	require.Eventually(t, func() bool { return len(w[0].driver.Leaks()) == 0 }, hang, time.Millisecond)
}

// What a graph has used is given back while another stream is in capture, which goes on.
func TestGivenBackInCapture(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	graph := graphs(t, w, func(r *rank) error { return r.enqueue(r.reduce(1000)) })
	launch(t, w, graph)
	for _, r := range w {
		r.ends(t)
		require.NoError(t, r.DeviceGroup.Close())
	}
	for _, r := range w {
		r.ends(t)
		r.release(t)
	}
	ctx, err := w[0].driver.Retain(0)
	require.NoError(t, err)
	require.NoError(t, ctx.Enter(false))
	stream, err := ctx.NewStream(0)
	require.NoError(t, err)
	w[0].driver.BeginCapture(stream)
	destroy(t, w, graph)
	require.Eventually(t, func() bool { return len(w[0].driver.Leaks()) == 3 }, time.Second, time.Millisecond,
		"but for the stream and its context, which is entered")
	other, err := w[0].driver.EndCapture(stream)
	require.NoError(t, err)
	require.NoError(t, other.Destroy())
	require.NoError(t, stream.Destroy())
	ctx.Leave()
	require.NoError(t, ctx.Release())
}

// A capture that has failed on one rank alone is not continued by another.
func TestCaptureAgain(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	made := make([]*cudatest.Graph, 2)
	sum := func(r *rank) error { return r.enqueue(r.reduce(1000)) }
	begun := make(chan bool)
	errs := each(2, func(i int) (err error) {
		if i == 1 {
			_, err := w[1].graph(func() error { return sum(w[1]) })
			if err != nil {
				return err
			}
			close(begun)
			made[1], err = w[1].graph(func() error { return sum(w[1]) })
			return err
		}
		made[0], err = w[0].graph(func() error {
			if err := sum(w[0]); err != nil {
				return err
			}
			<-begun
			return sum(w[0])
		})
		return err
	})
	for _, err := range errs {
		require.ErrorIs(t, err, fault.Mismatch)
	}
}

// Calls without elements are part of graphs, too.
func TestGraphsOfNothing(t *testing.T) {
	w := capturing(t, 2)
	length := func(_, _ int) int { return 0 }
	for i, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.AllToAll, dtype.Broadcast} {
		same(t, w, ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum}, true, uint64(i), length, length)
	}
	end(t, w)
}

// What the driver refuses one rank is refused by all, at once, and the group goes on.
func TestCaptureRefusedByOne(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	w[0].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: "cuUserObjectCreate", Nth: 1, Code: 801}}})
	errs := each(2, func(i int) error { return w[i].once(func() error { return w[i].enqueue(w[i].reduce(1000)) }) })
	for _, err := range errs {
		require.ErrorIs(t, err, fault.NotSupported)
	}
	text := errs[0].Error() + errs[1].Error()
	require.Contains(t, text, "cuUserObjectCreate")
	require.Regexp(t, "rank [01] cannot make the call a part of a CUDA graph", text)
	w[0].driver.SetFaults(cudatest.Faults{})
	for _, err := range each(2, func(i int) error {
		require.Nil(t, w[i].Failure())
		return w[i].once(func() error { return w[i].enqueue(w[i].reduce(1000)) })
	}) {
		require.NoError(t, err)
	}
	end(t, w)
}
