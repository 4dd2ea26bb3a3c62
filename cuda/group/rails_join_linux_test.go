package group_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Ranks in processes of their own on several hosts choose windows within the hosts if these have
// the same number of ranks, and say what they have chosen and why.
func TestRailsOfProcesses(t *testing.T) {
	for _, c := range []struct {
		hosts []int
		route string
		text  string // of the Route
		err   string
	}{
		{[]int{0, 0, 1, 1}, "auto", "windows within hosts, staged between 2 hosts, 1 device a host", ""},
		{[]int{1, 0, 0, 1}, "host-windows", "host-windows within hosts, staged between 2 hosts", ""},
		{[]int{0, 0, 1}, "auto", "staged; no better route: the ranks are on hosts of 2, 1: windows are for hosts with the " +
			"same number of ranks", ""},
		{[]int{0, 1}, "auto", "staged; no better route: the ranks share no memory", ""},
		{[]int{0, 0, 1}, "windows", "", "the ranks are on hosts of 2, 1"},
		{[]int{0, 1}, "windows", "", "the ranks share no memory"},
	} {
		t.Run(fmt.Sprint(c.hosts, " ", c.route), func(t *testing.T) {
			before := windowDescriptors(t)
			n := len(c.hosts)
			opts := small()
			opts.CudaRoute = c.route
			machines, devices := make([]*cudatest.Driver, n), make([]cuda.Context, n)
			windows := make([]*ccl.DeviceWindow, n)
			for rank := range n {
				var err error
				machines[rank] = cudatest.New(quick) // each process sees its own streams
				devices[rank], err = machines[rank].Retain(0)
				require.NoError(t, err)
				windows[rank], err = ccl.NewDeviceWindow(devices[rank], opts, n)
				require.NoError(t, err)
			}
			comms := joined(t, c.hosts, opts, windows)
			w := make([]*rank, n)
			for i, err := range each(n, func(i int) (err error) {
				w[i] = &rank{driver: machines[i], ctx: devices[i]}
				w[i].DeviceGroup, err = comms[i].OnDevice(devices[i], windows[i])
				return err
			}) {
				if c.err != "" {
					require.ErrorIs(t, err, fault.NotSupported)
					require.ErrorContains(t, err, c.err)
					require.NoError(t, devices[i].Release())
					continue
				}
				require.NoError(t, err)
				require.Contains(t, w[i].Route().String(), c.text)
			}
			if c.err == "" {
				for i, comm := range localOf(t, c.hosts, small()) {
					w[i].furnish(t, memory)
					w[i].cpu = comm
				}
				for seed, coll := range dtype.Collectives() {
					length := func(_, _ int) int { return 30_000 }
					same(t, w, ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum}, false, uint64(seed), length, length)
				}
				end(t, w)
			}
			for _, machine := range machines {
				machine.Check(t)
				require.Empty(t, machine.Leaks())
				machine.Close()
			}
			require.Equal(t, before, windowDescriptors(t))
		})
	}
}

// Whichever call to the driver fails on one rank while ranks of two hosts join, all have the same
// route then, or none has joined, and everything is given back.
func TestRailsJoinFails(t *testing.T) {
	for _, call := range []string{"cuMemHostRegister", "cuStreamCreateWithPriority", "cuEventCreate",
		"cuModuleLoadData", "cuMemCreate", "cuMemcpyAsync", "cuStreamBatchMemOp"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			step := 3
			if testing.Short() {
				step = 11
			}
			for nth := 1; railsJoinFails(t, call, nth); nth += step {
			}
		})
	}
}

func railsJoinFails(t *testing.T, call string, nth int) (more bool) {
	hosts := networkOf(2, 2)
	lame := cudatest.New(cudatest.Options{Delay: -1, Faults: cudatest.Faults{
		Fail: []cudatest.Failure{{Call: call, Nth: nth, Code: 2}}}})
	whole := cudatest.New(cudatest.Options{Delay: -1})
	comms := localOf(t, hosts, auto)
	groups := make([]*ccl.DeviceGroup, len(hosts))
	errs := each(len(hosts), func(i int) error {
		device, err := []*cudatest.Driver{lame, whole}[hosts[i]].Retain(0)
		require.NoError(t, err)
		window, err := ccl.NewDeviceWindow(device, auto, len(hosts))
		require.NoError(t, err)
		if groups[i], err = comms[i].OnDevice(device, window); err != nil {
			require.NoError(t, device.Release())
		}
		return err
	})
	more = lame.Calls(call) >= nth
	lame.SetFaults(cudatest.Faults{})
	if errors.Join(errs...) == nil {
		for _, g := range groups {
			require.Equal(t, groups[0].Route().Name, g.Route().Name, "%s %d", call, nth)
		}
	}
	for _, err := range each(len(hosts), func(i int) error {
		if groups[i] == nil {
			return nil
		}
		return groups[i].Close()
	}) {
		require.NoError(t, err)
	}
	for _, driver := range []*cudatest.Driver{lame, whole} {
		require.Empty(t, driver.Leaks(), "%s %d: %v", call, nth, errs)
		driver.Check(t)
		driver.Close()
	}
	return more
}
