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

// While the kernels of two ranks wait for a third one, something happens: they are let go, and the
// reason is told.
func TestInterpretedIsLetGo(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		happens func(t *testing.T, w []*rank)
		code    fault.Code
		text    string
	}{
		"abort": {0, func(_ *testing.T, w []*rank) { w[0].Abort(fault.New(fault.Aborted, "that is enough")) },
			fault.Aborted, "that is enough"},
		"late": {2 * time.Second, func(*testing.T, []*rank) {}, fault.Timeout,
			"rank 2 is in no call since seq 1"},
		"leave": {0, func(t *testing.T, w []*rank) { require.NoError(t, w[2].DeviceGroup.Close()) },
			fault.PeerLeft, "rank 2"},
		"another call": {0, func(t *testing.T, w []*rank) { w[2].begin(t, w[2].reduce(17)).Free() },
			fault.Mismatch, "rank 2 called all_reduce seq 2, 17 x f32"},
		"a longer call": {0, func(t *testing.T, w []*rank) { w[2].begin(t, w[2].reduce(90_000)).Free() },
			fault.Mismatch, "rank 2 called all_reduce seq 2, 90000 x f32"},
		"a barrier": {0, func(t *testing.T, w []*rank) {
			w[2].begin(t, &ccl.Call{Coll: dtype.Barrier}).Free()
		}, fault.Mismatch, "barrier"},
	} {
		for _, count := range []int{1000, 5000} { // in packets, and with flags
			t.Run(fmt.Sprint(name, " ", count), func(t *testing.T) {
				t.Parallel()
				options := interpreted
				options.Timeout = c.timeout
				device := quick
				device.Stuck = -1 // on a busy machine, timeouts come late
				w := machine(t, 3, device, options, memory)
				length := func(_, _ int) int { return count }
				same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum}, true, 1, length, length)
				ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(count)), w[1].begin(t, w[1].reduce(count))}
				w[0].driver.Settle()
				c.happens(t, w)
				for i, op := range ops {
					err := w[i].fails(t, op)
					require.ErrorIs(t, err, c.code)
					require.ErrorContains(t, err, c.text)
					op.Free()
				}
				w[0].stays(t, c.code)
				if name != "leave" { // of which the device was given back
					bury(t, w)
				}
			})
		}
	}
}

// Of several ranks that wait for one that is late in the middle of a call, all name that one: what
// a kernel waits for is told to the host.
func TestInterpretedNamesTheLateOne(t *testing.T) {
	for _, count := range []int{1000, 5000} {
		options := interpreted
		options.Timeout = 300 * time.Millisecond
		device := quick
		device.Stuck = -1
		w := machine(t, 4, device, options, memory)
		w[1].driver.Hold(w[1].stream) // where the call then waits for the caller
		var ops []*ccl.DeviceWork
		for _, r := range w {
			ops = append(ops, r.begin(t, r.reduce(count)))
		}
		for i, op := range ops {
			_, err := op.Wait(hang)
			require.ErrorIs(t, err, fault.Timeout)
			require.ErrorContains(t, err, "rank 1", "rank %d", i)
		}
		w[1].driver.Release(w[1].stream)
		for i, op := range ops {
			w[i].fails(t, op)
			op.Free()
		}
		bury(t, w)
	}
}

// A kernel that cannot be launched ends the group.
func TestInterpretedLaunchFails(t *testing.T) {
	w := machine(t, 3, quick, interpreted, memory)
	w[1].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: "cuLaunchKernelEx", Nth: 2, Code: 2}}})
	for _, r := range w {
		if op, err := r.Enqueue(r.reduce(1000), r.stream); err == nil {
			op.Join(r.stream)
			op.Free()
		}
	}
	w[1].driver.SetFaults(cudatest.Faults{})
	for _, r := range w {
		require.Eventually(t, func() bool { return r.Failure() != nil }, hang, time.Millisecond)
		require.ErrorContains(t, r.Failure(), "cuLaunchKernelEx")
		r.stays(t, fault.System)
	}
	bury(t, w)
}

// By default no short call is a kernel; with auto, where each rank has a device of its own.
func TestInterpretedByDefault(t *testing.T) {
	for _, c := range []struct {
		devices          int
		route, interpret string
		want             bool
	}{
		{3, "windows", "", false}, {1, "windows", "auto", false}, {3, "windows", "auto", true},
		{3, "windows", "0", false},
		{2, "auto", "auto", false}, {1, "auto", "1", true}, {3, "host-windows", "1", false}, {3, "staged", "1", false},
	} {
		device, kernels := counted(quick)
		device.Devices = c.devices
		options := ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: c.route, CudaInterpret: c.interpret}
		w := machine(t, 3, device, options, memory)
		length := func(_, _ int) int { return 1000 }
		same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum}, true, 1, length, length)
		require.Equal(t, c.want, kernels.Load() == 3, "%+v: %v", c, w[0].Route())
		require.Equal(t, c.want, w[0].Route().Interpreted > 0, "%+v", c)
		end(t, w)
	}
}
