package group_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Whichever call to the driver fails while ranks join, they have the same route then, or none has
// joined, and everything is given back but what could not be.
func TestJoinFails(t *testing.T) {
	for _, call := range []string{"cuCtxPushCurrent", "cuMemHostRegister", "cuStreamCreateWithPriority",
		"cuEventCreate", "cuModuleLoadData", "cuMemCreate", "cuMemExportToShareableHandle", "cuMemcpyAsync",
		"cuStreamBatchMemOp", "cuMemImportFromShareableHandle", "cuMemHostUnregister", "cuMemRelease"} {
		t.Run(call, func(t *testing.T) {
			step := 3
			switch {
			case call == "cuCtxPushCurrent":
				step = 2
			case call == "cuStreamCreateWithPriority" || call == "cuMemHostUnregister" || call == "cuMemRelease":
				step = 1
			}
			if testing.Short() {
				step *= 3
			}
			for nth := step; joinFails(t, call, nth); nth += step {
			}
		})
	}
}

func joinFails(t *testing.T, call string, nth int) (more bool) {
	const ranks = 2
	node, comms, err := ccl.Local(context.Background(), ranks, auto)
	require.NoError(t, err)
	driver := cudatest.New(cudatest.Options{Delay: -1, Devices: 2, Faults: cudatest.Faults{
		Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}}})
	defer driver.Close()
	groups := make([]*ccl.DeviceGroup, ranks)
	errs := each(ranks, func(i int) error {
		device, err := driver.Retain(i)
		require.NoError(t, err)
		window, err := ccl.NewDeviceWindow(device, auto, ranks)
		require.NoError(t, err)
		if groups[i], err = comms[i].OnDevice(device, window); err != nil {
			require.NoError(t, device.Release())
		}
		return err
	})
	more = driver.Calls(call) >= nth
	driver.SetFaults(cudatest.Faults{})
	if errs[0] == nil && errs[1] == nil {
		require.Equal(t, groups[0].Route().Name, groups[1].Route().Name)
	}
	node.Close()
	left := 0 // what could not be given back
	switch call {
	case "cuMemHostUnregister", "cuMemRelease":
		require.NoError(t, errors.Join(errs...), "the ranks have joined")
		left = 1
	case "cuCtxPushCurrent":
		if errors.Join(errs...) == nil {
			left = 1
		}
	}
	require.LessOrEqual(t, len(driver.Leaks()), left, "%s %d: %v, %v", call, nth, errs, driver.Leaks())
	if left == 0 {
		driver.Check(t)
	}
	return more
}

// Descriptors of a window are closed once, whoever has them next.
func TestDescriptorsAreClosedOnce(t *testing.T) {
	node, comms, err := ccl.Local(context.Background(), 2, auto)
	require.NoError(t, err)
	driver := cudatest.New(cudatest.Options{Delay: -1})
	defer driver.Close()
	for _, err := range each(2, func(i int) error {
		device, err := driver.Retain(0)
		require.NoError(t, err)
		window, err := ccl.NewDeviceWindow(device, auto, 2)
		require.NoError(t, err)
		_, err = comms[i].OnDevice(device, window)
		return err
	}) {
		require.NoError(t, err)
	}
	var files []*os.File
	for range 50 {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		files = append(files, f)
	}
	require.NoError(t, node.Close())
	for _, f := range files {
		require.NoError(t, f.Close())
	}
}

// A rank that could not open the memory of another process for one kind of windows has it for the
// other one, and closes its descriptors.
func TestWindowsOfProcessesOpenedAgain(t *testing.T) {
	var again atomic.Bool
	for nth := 5; nth < 7; nth++ { // the pages of the peers
		before := windowDescriptors(t)
		driver := cudatest.New(cudatest.Options{Delay: -1, Faults: cudatest.Faults{
			Fail: []cudatest.Failure{{Call: "cuMemHostRegister", Nth: nth, Code: 2}}}})
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		var nodes [2]*ccl.Node
		var endpoints [2]*ccl.Endpoint
		var devices [2]cuda.Context
		var windows [2]*ccl.DeviceWindow
		addresses := make([][]byte, 2)
		for i := range nodes {
			var err error
			nodes[i], err = ccl.NewNode(ccl.NodeOptions{})
			require.NoError(t, err)
			devices[i], err = driver.Retain(0)
			require.NoError(t, err)
			windows[i], err = ccl.NewDeviceWindow(devices[i], auto, 2)
			require.NoError(t, err)
			endpoints[i], err = nodes[i].Open(ccl.Config{Name: "again", Rank: i, Size: 2, Options: auto,
				Share: windows[i].Descriptors()})
			require.NoError(t, err)
			addresses[i] = endpoints[i].Address()
		}
		errs := each(2, func(i int) error {
			comm, err := endpoints[i].Join(ctx, addresses)
			require.NoError(t, err)
			group, err := comm.OnDevice(devices[i], windows[i])
			if err != nil {
				return errors.Join(err, devices[i].Release())
			}
			if group.Route().Name == "host-windows" {
				again.Store(true)
			}
			return nil
		})
		cancel()
		for i := range nodes {
			require.NoError(t, nodes[i].Close(), "%v", errs)
		}
		require.Empty(t, driver.Leaks())
		driver.Close()
		require.Equal(t, before, windowDescriptors(t), "%d: %v", nth, errs)
	}
	require.True(t, again.Load())
}

// windowDescriptors counts the descriptors that this process has of windows and pages.
func windowDescriptors(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, each := range all {
		to, _ := os.Readlink("/proc/self/fd/" + each.Name())
		if strings.Contains(to, "memfd:goccl-device") || strings.Contains(to, "memfd:goccl-window") ||
			strings.Contains(to, "memfd:goccl-cudatest") {
			n++
		}
	}
	return n
}

// Ranks of other processes get the memory that a rank makes for graphs, by a descriptor each time,
// and all of it is given back.
func TestGraphsGrowBetweenProcesses(t *testing.T) {
	for _, opts := range eitherWindows {
		t.Run(opts.CudaRoute, func(t *testing.T) {
			const ranks, most, count = 3, 30, 64
			before, open := windowDescriptors(t), socketDescriptors(t)
			opts.CudaGraphs = most
			var nodes [ranks]*ccl.Node
			var endpoints [ranks]*ccl.Endpoint
			var windows [ranks]*ccl.DeviceWindow
			addresses, w := make([][]byte, ranks), make([]*rank, ranks)
			for i := range nodes {
				var err error
				nodes[i], err = ccl.NewNode(ccl.NodeOptions{})
				require.NoError(t, err)
				w[i] = &rank{driver: cudatest.New(quick)} // a driver sees no words of other processes
				w[i].ctx, err = w[i].driver.Retain(0)
				require.NoError(t, err)
				windows[i], err = ccl.NewDeviceWindow(w[i].ctx, opts, ranks)
				require.NoError(t, err)
				endpoints[i], err = nodes[i].Open(ccl.Config{Name: "graphs", Rank: i, Size: ranks, Options: opts,
					Share: windows[i].Descriptors()})
				require.NoError(t, err)
				addresses[i] = endpoints[i].Address()
			}
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			defer cancel()
			for _, err := range each(ranks, func(i int) error {
				comm, err := endpoints[i].Join(ctx, addresses)
				if err == nil {
					w[i].DeviceGroup, err = comm.OnDevice(w[i].ctx, windows[i])
				}
				return err
			}) {
				require.NoError(t, err)
			}
			var all [][]*cudatest.Graph
			for i, r := range w {
				r.furnish(t, 64<<10)
				r.put(t, 0, bytes.Repeat([]byte{byte(i + 1), 0, 0, 0}, count))
			}
			for at := range most {
				all = append(all, graphs(t, w, func(r *rank) error {
					return r.enqueue(&ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum,
						In: r.part(0, count), Out: r.part(4*count*(1+at), count)})
				}))
			}
			for _, graph := range all {
				launch(t, w, graph)
			}
			for at := range most {
				for _, r := range w {
					r.fetch(t, 4*count*(1+at), 4*count)
					require.Equal(t, bytes.Repeat([]byte{6, 0, 0, 0}, count), r.get(t, 4*count*(1+at), 4*count))
				}
			}
			destroy(t, w, all...)
			end(t, w)
			for i := range nodes {
				require.NoError(t, nodes[i].Close())
				w[i].driver.Close()
			}
			require.Equal(t, before, windowDescriptors(t))
			require.LessOrEqual(t, socketDescriptors(t), open)
		})
	}
}

// socketDescriptors counts the sockets that this process has.
func socketDescriptors(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, each := range all {
		to, _ := os.Readlink("/proc/self/fd/" + each.Name())
		if strings.HasPrefix(to, "socket:") || strings.Contains(to, "memfd:goccl-graphs") {
			n++
		}
	}
	return n
}
