package group_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/cudatest"
)

// overWindows are options of groups whose ranks read each other's windows in the memory of their
// device, overHostWindows of those with windows in memory of the host.
var (
	overWindows     = ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: "windows"}
	overHostWindows = ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: "host-windows"}
	eitherWindows   = []ccl.GroupOptions{overWindows, overHostWindows}
)

// machine makes a device group whose ranks share the devices of one machine, as if they were
// processes.
func machine(t testing.TB, n int, device cudatest.Options, opts ccl.GroupOptions, memory int) []*rank {
	t.Helper()
	device.Apart = true
	driver := cudatest.New(device)
	t.Cleanup(driver.Close)
	return ranksOnDevices(t, slices.Repeat([]*cudatest.Driver{driver}, n), max(1, device.Devices), opts, memory)
}

// Every collective has the bits that it has on the processor, over windows, too: in the memory of
// the device for even numbers of ranks, else of the host.
func TestWindowsMatrix(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		if skipped(ranks) {
			continue
		}
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			w := machine(t, ranks, quick, eitherWindows[ranks%2], memory)
			everyCall(t, w)
			end(t, w)
		})
	}
}

func TestWindowsUnequalBlocks(t *testing.T) {
	unequalBlocks(t, machine(t, 3, quick, overWindows, memory))
}

func TestWindowsLengths(t *testing.T) { lengths(t, machine(t, 3, quick, overWindows, memory)) }

func TestWindowsOrder(t *testing.T) {
	inOrder(t, func(t *testing.T, n int, seed uint64) []*rank {
		device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond}
		return machine(t, n, device, eitherWindows[seed%2], 256<<10)
	})
}

// maker makes a device group of n ranks.
type maker func(t testing.TB, n int, device cudatest.Options, opts ccl.GroupOptions) []*rank

// bothRoutes runs a test with calls that are staged, and with calls over windows.
func bothRoutes(t *testing.T, test func(t *testing.T, world maker)) {
	t.Run("staged", func(t *testing.T) { test(t, world) })
	t.Run("windows", func(t *testing.T) {
		test(t, func(t testing.TB, n int, device cudatest.Options, opts ccl.GroupOptions) []*rank {
			opts.CudaRoute = "windows"
			return machine(t, n, device, opts, memory)
		})
	})
}

// Where a call to the driver fails while something is enqueued, every rank gets the error, and all
// streams go on.
func TestWindowsEnqueueFails(t *testing.T) {
	for _, call := range []string{"cuMemcpyAsync", "cuStreamBatchMemOp", "cuStreamWaitEvent", "cuEventRecord",
		"cuLaunchKernelEx"} {
		for _, nth := range []int{1, 2, 5} { // every third wait for an event is the test's own
			t.Run(fmt.Sprint(call, " ", nth), func(t *testing.T) {
				w := machine(t, 3, quick, overWindows, memory)
				w[1].driver.SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}})
				for range 5 {
					for _, r := range w {
						if op, err := r.Enqueue(r.reduce(100_000), r.stream); err == nil {
							op.Join(r.stream)
							op.Free()
						}
					}
				}
				w[1].driver.SetFaults(cudatest.Faults{})
				for _, r := range w {
					require.Eventually(t, func() bool { return r.Failure() != nil }, hang, time.Millisecond)
					require.ErrorContains(t, r.Failure(), call)
					r.stays(t, fault.System)
				}
				bury(t, w)
			})
		}
	}
}

// A rank that calls something that does not go over windows is found out, too.
func TestWindowsMismatchOfRoutes(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(1000)), w[1].begin(t, &ccl.Call{Coll: dtype.Barrier})}
	for i, op := range ops {
		err := w[i].fails(t, op)
		require.ErrorIs(t, err, fault.Mismatch)
		require.ErrorContains(t, err, "barrier")
		op.Free()
	}
	bury(t, w)
}

// What peers may still use stays until they leave, too.
func TestWindowsOneLeavesFirst(t *testing.T) {
	w := machine(t, 3, quick, overWindows, memory)
	length := func(_, _ int) int { return 100_000 }
	same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum}, true, 1, length, length)
	require.NoError(t, w[1].DeviceGroup.Close())
	w[1].driver.Settle() // whatever the others still do with the memory, it is there
	end(t, w)
}

// Barriers, messages and collectives over windows follow each other.
func TestWindowsBesideStaged(t *testing.T) {
	w := machine(t, 3, quick, overWindows, memory)
	length := func(_, _ int) int { return 30_000 }
	for round := range 4 {
		for _, err := range each(3, func(i int) error { return w[i].issue(&ccl.Call{Coll: dtype.Barrier}) }) {
			require.NoError(t, err)
		}
		same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Avg}, true, uint64(round), length, length)
		for _, err := range each(3, func(i int) error {
			if i == 2 {
				return nil
			}
			return w[i].issue(w[i].message([]dtype.Collective{dtype.Send, dtype.Recv}[i], 1-i, 0, 40_000, 0))
		}) {
			require.NoError(t, err)
		}
		call := ccl.Call{Coll: dtype.Broadcast, Type: dtype.U8, Root: round % 3}
		same(t, w, call, true, uint64(round), length, length)
	}
	end(t, w)
}

// A device whose memory has no descriptors says what does without.
func TestWindowsCannotBe(t *testing.T) {
	driver := cudatest.New(cudatest.Options{Faults: cudatest.Faults{NoDescriptors: true}})
	defer driver.Close()
	device, err := driver.Retain(0)
	require.NoError(t, err)
	_, err = ccl.NewDeviceWindow(device, overWindows, 2)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "GOCCL_CUDA_ROUTE=host-windows")
	window, err := ccl.NewDeviceWindow(device, overHostWindows, 2)
	require.NoError(t, err)
	require.NoError(t, window.Free())
	require.NoError(t, device.Release())
	driver.Check(t)
	require.Empty(t, driver.Leaks())
}

// A rank without a window has all ranks stage; devices that do not reach each other are an error,
// which names them or the other rank.
func TestWindowsDisagree(t *testing.T) {
	for name, devices := range map[string][]int{"one has none": {0, 0}, "two devices": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			node, comms, err := ccl.Local(context.Background(), 2, overWindows)
			require.NoError(t, err)
			driver := cudatest.New(cudatest.Options{Devices: 2, Faults: cudatest.Faults{NoPeers: true}})
			defer driver.Close()
			groups := make([]*ccl.DeviceGroup, 2)
			errs := each(2, func(i int) error {
				device, err := driver.Retain(devices[i])
				require.NoError(t, err)
				var window *ccl.DeviceWindow
				if devices[1] != 0 || i == 0 {
					window, err = ccl.NewDeviceWindow(device, overWindows, 2)
					require.NoError(t, err)
				}
				if groups[i], err = comms[i].OnDevice(device, window); err != nil {
					require.NoError(t, device.Release())
				}
				return err
			})
			for i, err := range errs {
				if devices[1] == 0 {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, fault.NotSupported)
				require.ErrorContains(t, err, fmt.Sprintf("device %d does not reach the memory of device %d", i, 1-i))
			}
			require.NoError(t, node.Close())
			driver.Check(t)
			require.Empty(t, driver.Leaks())
		})
	}
}

// Ranks on several devices that reach each other have windows in the memory of all of them; memory
// of the host does, too.
func TestWindowsOfDevices(t *testing.T) {
	for _, devices := range []int{2, 4} {
		for i, opts := range eitherWindows {
			if testing.Short() && (devices == 4 || i > 0) {
				continue
			}
			t.Run(fmt.Sprint(devices, " devices, ", opts.CudaRoute), func(t *testing.T) {
				t.Parallel()
				device := quick
				device.Devices = devices
				w := machine(t, max(3, devices), device, opts, memory)
				require.Equal(t, opts.CudaRoute, w[1].Route().Name)
				require.Equal(t, devices, w[1].Route().Devices)
				everyCall(t, w)
				end(t, w)
			})
		}
	}
}

// In a long call the next piece is offered while the stream waits for what the peers offer.
func TestWindowsOfferAhead(t *testing.T) {
	var copies atomic.Int32
	device := cudatest.Options{Delay: -1, Stuck: -1, Trace: func(line string) {
		if strings.Contains(line, ": copy to ") {
			copies.Add(1)
		}
	}}
	w := machine(t, 2, device, overWindows, memory)
	count := 90_000 // three pieces, and two slots
	w[1].driver.Hold(w[1].stream)
	ops := []*ccl.DeviceWork{w[0].begin(t, w[0].reduce(count))}
	w[0].driver.Settle()
	require.EqualValues(t, 2, copies.Load(), "of the first two pieces, into the window")
	ops = append(ops, w[1].begin(t, w[1].reduce(count)))
	w[1].driver.Release(w[1].stream)
	for _, op := range ops {
		done, err := op.Wait(hang)
		require.True(t, done)
		require.NoError(t, err)
		op.Free()
	}
	end(t, w)
}

// Windows are larger where devices have much memory. Where one rank cannot have that much, all use
// the first part of theirs.
func TestWindowsGrow(t *testing.T) {
	for _, short := range []bool{false, true} {
		for _, interpret := range []string{"0", "1"} {
			device := quick
			device.Devices, device.Bytes = 2, 12<<30
			if short {
				device.Faults.Fail = []cudatest.Failure{{Call: "cuMemCreate", Nth: 2, Code: 2}}
			}
			opts := ccl.GroupOptions{CudaRoute: "windows", CudaInterpret: interpret, CudaGraphs: 2}
			w := machine(t, 2, device, opts, memory)
			for i, count := range []int{500, 900_000} {
				length := func(_, _ int) int { return count }
				for _, captures := range []bool{false, true} {
					for _, r := range w {
						r.captures = captures
					}
					for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast} {
						same(t, w, ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Sum}, true, uint64(i), length, length)
					}
				}
			}
			end(t, w)
		}
	}
}
