package group_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Processes get the arenas of each other with the windows. Where one cannot be mapped, all ranks go
// another way, and everything is given back.
func TestLendOfProcesses(t *testing.T) {
	for nth := range 7 { // imports: of windows and arenas, on both ranks
		for _, lends := range [][2]bool{{true, true}, {false, true}} {
			if nth > 0 && !lends[0] {
				continue
			}
			t.Run(fmt.Sprint("import ", nth, " fails, rank 0 lends: ", lends[0]), func(t *testing.T) {
				lendOfProcesses(t, nth, lends)
			})
		}
	}
}

func lendOfProcesses(t *testing.T, nth int, lends [2]bool) {
	before := windowDescriptors(t)
	driver := cudatest.New(cudatest.Options{Delay: -1})
	defer driver.Close()
	if nth > 0 {
		driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{
			{Call: "cuMemImportFromShareableHandle", Nth: nth, Code: 2}}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	opts := ccl.GroupOptions{CudaBuffSize: 256 << 10}
	var nodes [2]*ccl.Node
	var endpoints [2]*ccl.Endpoint
	var windows [2]*ccl.DeviceWindow
	var ranks [2]rank
	var arenas [2]*ccl.DeviceArena
	addresses := make([][]byte, 2)
	for i := range nodes {
		var err error
		nodes[i], err = ccl.NewNode(ccl.NodeOptions{CudaRegistered: 4 << 20})
		require.NoError(t, err)
		ranks[i].ctx, err = driver.Retain(0)
		require.NoError(t, err)
		windows[i], err = ccl.NewDeviceWindow(ranks[i].ctx, opts, 2)
		require.NoError(t, err)
		if lends[i] {
			arenas[i], err = nodes[i].DeviceArena(driver, 0, nil)
			require.NoError(t, err)
			require.NoError(t, windows[i].Lend(arenas[i]))
		}
		endpoints[i], err = nodes[i].Open(ccl.Config{Name: "lent", Rank: i, Size: 2, Options: opts,
			Share: windows[i].Descriptors()})
		require.NoError(t, err)
		addresses[i] = endpoints[i].Address()
	}
	for _, err := range each(2, func(i int) error {
		comm, err := endpoints[i].Join(ctx, addresses)
		if err == nil {
			ranks[i].DeviceGroup, err = comm.OnDevice(ranks[i].ctx, windows[i])
		}
		return err
	}) {
		require.NoError(t, err)
	}
	route := "windows"
	if nth > 0 && driver.Calls("cuMemImportFromShareableHandle") >= nth {
		route = "host-windows"
	}
	require.Equal(t, route, ranks[0].Route().Name)
	const count = 32 << 10
	data := random(3, 4*count)
	for i := range ranks {
		r := &ranks[i]
		r.arena = arenas[i]
		r.furnish(t, 4*count)
	}
	ranks[1].put(t, 0, data)
	length := func(int) int { return count }
	for i := range ranks {
		b := buffersOf(dtype.Broadcast, dtype.F32, 2, i, 1, true, length, length)
		call := b.call(ccl.Call{Coll: dtype.Broadcast, Type: dtype.F32, Root: 1}, pointerOf(ranks[i].device.Ptr()), 4)
		require.NoError(t, ranks[i].issue(call))
	}
	ranks[0].fetch(t, 0, 4*count)
	require.True(t, bytes.Equal(data, ranks[0].get(t, 0, 4*count)))
	require.Equal(t, route == "windows", ranks[1].Exposed() == 1)
	for i := range ranks {
		require.NoError(t, ranks[i].ctx.Enter(false))
		require.NoError(t, ranks[i].stream.Synchronize())
		ranks[i].ctx.Leave()
		ranks[i].release(t)
	}
	require.NoError(t, errors.Join(nodes[0].Close(), nodes[1].Close()))
	require.Empty(t, driver.Leaks())
	for _, report := range driver.Reports() { // what pages order that were mapped twice, the driver does not see
		require.Equal(t, cudatest.Race, report.Kind, report.Text)
	}
	driver.Close()
	require.Equal(t, before, windowDescriptors(t))
}
