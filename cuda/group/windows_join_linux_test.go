package group_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
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
			nodes[i], err = ccl.NewNode(auto)
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
