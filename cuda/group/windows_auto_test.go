package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
)

// auto are options of groups that choose their route.
var auto = ccl.GroupOptions{CudaBuffSize: 256 << 10}

// The ranks choose the best route that works on all of them, and say why it is no better one.
func TestAuto(t *testing.T) {
	fail := func(call string, nth int) cudatest.Faults {
		return cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}}
	}
	for _, c := range []struct {
		name    string
		devices int
		faults  cudatest.Faults
		route   string
		why     string
	}{
		{"one device", 1, cudatest.Faults{}, "windows", ""},
		{"two devices", 2, cudatest.Faults{}, "windows host-windows", ""}, // whichever is faster
		{"four devices", 4, cudatest.Faults{}, "windows host-windows", ""},
		{"no peers", 2, cudatest.Faults{NoPeers: true}, "host-windows",
			"rank 0: not supported: device 0 does not reach the memory of device 1"},
		{"one direction", 4, cudatest.Faults{Apart: [][2]int{{2, 1}}}, "host-windows",
			"rank 2: not supported: device 2 does not reach the memory of device 1"},
		{"no descriptors", 1, cudatest.Faults{NoDescriptors: true}, "host-windows",
			"rank 0: not supported: device 0 (memory of the host) cannot share its memory"},
		{"one without memory", 1, fail("cuMemCreate", 2), "host-windows", "cuMemCreate"},
		{"one without descriptor", 1, fail("cuMemExportToShareableHandle", 3), "host-windows", "cuMemExport"},
		{"one without code", 1, fail("cuModuleLoadData", 4), "staged", "cuModuleLoadData"},
		{"one that cannot fill", 2, fail("cuMemcpyAsync", 1), "windows", ""},
		{"one that cannot read", 1, fail("cuMemcpyAsync", 6), "host-windows", "cuMemcpyAsync"},
		{"one that cannot tell", 1, cudatest.Faults{Fail: []cudatest.Failure{
			{Call: "cuStreamBatchMemOp", Nth: 2, Code: 2, In: "emitter.go"}}}, "host-windows", "cuStreamBatchMemOp"},
		{"one that cannot probe", 2, fail("cuMemCreate", 6), "staged", "cuMemCreate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := quick
			device.Devices, device.Faults = c.devices, c.faults
			w := machine(t, 4, device, auto, memory)
			route := w[0].Route()
			require.Contains(t, strings.Fields(c.route), route.Name)
			require.Contains(t, route.Why, c.why)
			require.Equal(t, c.devices, route.Devices)
			if route.Name == "windows" {
				require.Positive(t, route.Device.Rate)
			}
			for _, r := range w {
				require.Equal(t, route, r.Route())
			}
			length := func(_, _ int) int { return 20_000 }
			for seed, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllToAll, dtype.Broadcast} {
				same(t, w, ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum}, true, uint64(seed), length, length)
			}
			end(t, w)
		})
	}
}

// What decides is what a copy costs and what its bytes cost, apart: where a copy takes long, links
// that are fast and slow ones look alike otherwise. The device has a clock, so the figures are
// exact.
func TestAutoMeasures(t *testing.T) {
	const word, latency = 700 * time.Nanosecond, 8 * time.Microsecond
	for _, c := range []struct {
		name         string
		device, host float64 // bytes a second
		slow         float64 // from device 2 to device 0
		route        string
	}{
		{"fast links", 380e9, 50e9, 380e9, "windows"},
		{"slow links", 11e9, 24e9, 11e9, "host-windows"},
		{"one slow link", 380e9, 50e9, 20e9, "host-windows"},
		{"links as fast", 26e9, 25e9, 26e9, "windows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := quick
			device.Devices = 3
			device.Cost = &cudatest.Cost{Operation: word, Copy: func(device, memory int) (time.Duration, float64) {
				switch {
				case memory < 0:
					return latency, c.host
				case memory == device:
					return latency, 4e12
				case device == 0 && memory == 2:
					return latency, c.slow
				}
				return latency, c.device
			}}
			w := machine(t, 3, device, ccl.GroupOptions{CudaBuffSize: 16 << 20}, memory)
			route := w[1].Route()
			require.Equal(t, c.route, route.Name)
			require.InEpsilon(t, min(c.device, c.slow), route.Device.Rate, 0.01)
			require.InEpsilon(t, c.host, route.Host.Rate, 0.01)
			require.InDelta(t, (word + latency).Seconds(), route.Device.Latency, 1e-7)
			require.InDelta(t, (word + latency).Seconds(), route.Host.Latency, 1e-7)
			require.InEpsilon(t, word.Seconds(), route.Word, 0.01)
			end(t, w)
		})
	}
}

// A rank that leaves while the others read its windows is named, and nobody waits for it. Some
// operation of each part of joining is its last one.
func TestAutoOneLeaves(t *testing.T) {
	for _, last := range []int{1, 3, 8, 14, 17, 20, 30} {
		t.Run(fmt.Sprint("operation ", last), func(t *testing.T) {
			const ranks = 3
			node, comms, err := ccl.Local(context.Background(), ranks, auto)
			require.NoError(t, err)
			var left sync.WaitGroup
			operations := 0
			device := quick
			device.Trace = func(string) {
				if operations++; operations == last {
					left.Go(func() { comms[2].Close() })
				}
			}
			driver := cudatest.New(device)
			defer driver.Close()
			begun := time.Now()
			errs := each(ranks, func(i int) error {
				ctx, err := driver.Retain(0)
				require.NoError(t, err)
				window, err := ccl.NewDeviceWindow(ctx, auto, ranks)
				require.NoError(t, err)
				if _, err = comms[i].OnDevice(ctx, window); err != nil {
					require.NoError(t, ctx.Release())
				}
				return err
			})
			require.Less(t, time.Since(begun), hang/2)
			left.Wait()
			for _, err := range errs[:2] {
				if err == nil { // it had joined by then
					continue
				}
				var f *fault.Error
				require.True(t, errors.As(err, &f) && f.Peer == 2 && f.Code == fault.PeerLeft, "%v", err)
			}
			for _, c := range comms { // one may have been closed just before it had joined
				require.NoError(t, c.Close())
			}
			require.NoError(t, node.Close())
			driver.Check(t)
			require.Empty(t, driver.Leaks())
		})
	}
}
