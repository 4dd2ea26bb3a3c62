package pgbackend

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/driver"
	"github.com/goccl/goccl/internal/mem"
)

// deviceRank is one rank of a group on a device, with a machine of its own and the caller's part of
// it.
type deviceRank struct {
	*Group
	driver  *cudatest.Driver
	ctx     cuda.Context // the caller's
	streams [2]cuda.Stream
	memory  cuda.Memory
	block   *mem.Block
	host    cuda.Registered // by which tests reach the device's memory
}

const deviceBytes = 1 << 20

// openOn opens a group on a machine of its own, so it is staged.
func openOn(t *testing.T, machine *cudatest.Driver, cfg Config) (*Group, error) {
	t.Helper()
	return openBy(t, machine, cfg, "staged")
}

// openBy opens a group that takes a route.
func openBy(t *testing.T, machine *cudatest.Driver, cfg Config, route string) (*Group, error) {
	t.Helper()
	defer SetDriver(func() (cuda.Driver, error) { return machine, nil })()
	cfg.Shim = "test"
	cfg.Options = "GOCCL_CUDA_BUFFSIZE=256KiB\nGOCCL_RECORDER=64\nGOCCL_CUDA_ROUTE=" + route
	g, err := Open(cfg)
	if err == nil {
		t.Cleanup(func() { g.Close() })
	}
	return g, err
}

// joinAll joins all groups, and returns the errors.
func joinAll(groups ...*Group) []error {
	addresses, errs := make([][]byte, len(groups)), make([]error, len(groups))
	for i, g := range groups {
		addresses[i] = g.Address()
	}
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { errs[i] = g.Join(addresses) })
	}
	all.Wait()
	return errs
}

// deviceWorld makes a group of n ranks on devices.
func deviceWorld(t *testing.T, n int, timeout time.Duration) []*deviceRank {
	t.Helper()
	ranks, groups := make([]*deviceRank, n), make([]*Group, n)
	for i := range ranks {
		r := &deviceRank{driver: cudatest.New(cudatest.Options{Seed: uint64(i), Delay: -1, Stuck: -1})}
		t.Cleanup(r.driver.Close)
		var err error
		r.Group, err = openOn(t, r.driver, Config{Name: t.Name(), Rank: i, Size: n, Timeout: timeout, Device: "cuda:0"})
		require.NoError(t, err)
		require.Equal(t, "cuda:0", r.Device())
		ranks[i], groups[i] = r, r.Group
		r.ctx, err = r.driver.Retain(0)
		require.NoError(t, err)
		r.inContext(t, func() {
			for j := range r.streams {
				r.streams[j], err = r.ctx.NewStream(0)
				require.NoError(t, err)
			}
			r.memory, err = r.ctx.Alloc(deviceBytes)
			require.NoError(t, err)
			r.block, err = mem.Alloc(deviceBytes)
			require.NoError(t, err)
			r.host, err = r.ctx.Register(r.block.Bytes())
			require.NoError(t, err)
		})
	}
	for _, err := range joinAll(groups...) {
		require.NoError(t, err)
	}
	return ranks
}

func (r *deviceRank) inContext(t *testing.T, f func()) {
	t.Helper()
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	f()
}

// put fills elements of the device's memory with a value, in the first stream.
func (r *deviceRank) put(t *testing.T, at, n int, value float32) {
	t.Helper()
	r.inContext(t, func() {
		for i := range n {
			*(*float32)(unsafe.Pointer(&r.host.Host()[4*(at+i)])) = value
		}
		r.ctx.(cuda.Observer).HostAccess(r.host.Ptr()+cuda.Ptr(4*at), 4*n, true)()
		require.NoError(t, r.streams[0].Copy(r.memory.Ptr()+cuda.Ptr(4*at), r.host.Ptr()+cuda.Ptr(4*at), 4*n))
	})
}

// get returns an element when what is in the second stream has ended.
func (r *deviceRank) get(t *testing.T, at int) (value float32) {
	t.Helper()
	r.inContext(t, func() {
		require.NoError(t, r.streams[1].Copy(r.host.Ptr()+cuda.Ptr(4*at), r.memory.Ptr()+cuda.Ptr(4*at), 4))
		require.NoError(t, r.streams[1].Synchronize())
		r.ctx.(cuda.Observer).HostAccess(r.host.Ptr()+cuda.Ptr(4*at), 4, false)()
		value = *(*float32)(unsafe.Pointer(&r.host.Host()[4*at]))
	})
	return value
}

// blockAt returns elements of the device's memory.
func (r *deviceRank) blockAt(at, n int) []ccl.Block {
	p := r.memory.Ptr() + cuda.Ptr(4*at)
	return []ccl.Block{{Ptr: *(*unsafe.Pointer)(unsafe.Pointer(&p)), Count: n}}
}

func (r *deviceRank) reduce(at, n int) *ccl.Call {
	block := r.blockAt(at, n)
	return &ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum, In: block, Out: block}
}

// enqueue enqueues behind the first stream.
func (r *deviceRank) enqueue(t *testing.T, call *ccl.Call) *ccl.DeviceWork {
	t.Helper()
	op, err := r.Enqueue(call, r.streams[0].Native())
	require.NoError(t, err)
	return op
}

// fails waits for a call that fails. The device may use the memory of the call until a stream that
// has joined it has come that far.
func (r *deviceRank) fails(t *testing.T, op *ccl.DeviceWork, code fault.Code, text string) {
	t.Helper()
	done, err := op.Wait(forever)
	require.True(t, done)
	require.ErrorIs(t, err, code)
	require.ErrorContains(t, err, text)
	require.Equal(t, err, op.Join(op.Group().Stream(r.streams[1].Native())))
	op.Free()
}

// end ends the ranks, and checks that the machines have seen nothing wrong. After a failure the
// streams that were let go race for slots.
func endDevices(t *testing.T, ranks []*deviceRank, failed bool) {
	t.Helper()
	for _, r := range ranks {
		r.inContext(t, func() {
			for _, s := range r.streams {
				require.NoError(t, s.Synchronize())
				require.NoError(t, s.Destroy())
			}
			require.NoError(t, r.host.Free())
			require.NoError(t, r.memory.Free())
		})
		require.NoError(t, r.ctx.Release())
		require.NoError(t, r.Close())
		require.NoError(t, r.block.Free())
		if !failed {
			r.driver.Check(t)
		}
		require.Empty(t, r.driver.Leaks())
	}
}

// Goroutines enqueue one after the other; each call sees what was in the stream before, and the
// stream that joins it sees the result.
func TestDeviceGroup(t *testing.T) {
	const n, calls, count = 3, 8, 30_000
	ranks := deviceWorld(t, n, forever)
	for i, r := range ranks {
		turn := make([]chan struct{}, calls+1)
		for c := range turn {
			turn[c] = make(chan struct{})
		}
		close(turn[0])
		for c := range calls {
			go func() {
				<-turn[c]
				defer close(turn[c+1])
				r.put(t, c*count, count, float32((c+1)*(i+1)))
				op := r.enqueue(t, r.reduce(c*count, count))
				if op.Seq() != uint64(c+1) || op.Join(op.Group().Stream(r.streams[1].Native())) != nil {
					t.Errorf("rank %d, call %d: seq %d", i, c, op.Seq())
				}
				op.Free()
			}()
		}
		<-turn[calls]
	}
	for _, r := range ranks {
		for c := range calls {
			require.Equal(t, float32(6*(c+1)), r.get(t, c*count+count-1))
		}
		require.EqualValues(t, calls, r.State().Seq)
		// The streams may be there before the thread that drives the calls has seen it.
		require.Eventually(t, func() bool {
			records := r.comm.Load().Records()
			return len(records) > 0 && records[len(records)-1].Done
		}, forever, time.Millisecond)
		records := r.comm.Load().Records()
		require.Len(t, records, calls, "one for each call, not for each piece")
		for c, record := range records {
			require.EqualValues(t, c+1, record.Seq)
			require.EqualValues(t, count, record.In)
			require.True(t, record.Done && record.Code == fault.OK && !record.Ended.IsZero())
		}
		require.NotEmpty(t, ccl.Trace())
		require.EqualValues(t, calls, r.comm.Load().Seq())
	}
	send := ranks[0].enqueue(t, &ccl.Call{Coll: dtype.Send, Type: dtype.F32, Root: 2, In: ranks[0].blockAt(0, 10)})
	recv := ranks[2].enqueue(t, &ccl.Call{Coll: dtype.Recv, Type: dtype.F32, Root: ccl.AnySource,
		Out: ranks[2].blockAt(count, 10)})
	for _, op := range []*ccl.DeviceWork{send, recv} {
		done, err := op.Wait(forever)
		require.True(t, done)
		require.NoError(t, err)
		require.EqualValues(t, 1, op.Seq())
	}
	require.Equal(t, 0, recv.Source())
	send.Free()
	recv.Free()
	require.NoError(t, ranks[0].SetTimeout(time.Second))
	for _, r := range ranks {
		require.True(t, r.Drain(forever))
		require.Empty(t, r.Lost())
	}
	endDevices(t, ranks, false)
	_, err := ranks[0].Enqueue(&ccl.Call{Coll: dtype.Barrier}, 0)
	require.ErrorIs(t, err, fault.Closed)
	require.ErrorContains(t, err, "after seq 8")
}

// What a group does depends on where its tensors are.
func TestDeviceOrHost(t *testing.T) {
	ranks := deviceWorld(t, 1, forever)
	barrier := &ccl.Call{Coll: dtype.Barrier}
	_, started := ranks[0].Start(barrier)
	_, sparse := ranks[0].StartSparse(SparseTensor{})
	for _, err := range []error{started, sparse, ranks[0].Run(barrier), ranks[0].MonitoredBarrier(0, false)} {
		require.ErrorIs(t, err, fault.NotSupported)
		require.ErrorContains(t, err, "are on cuda:0: use goccl_enqueue")
	}
	host := world(t, 1, forever)
	_, err := host[0].Enqueue(barrier, 0)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "use goccl_run or goccl_start")
	op, err := ranks[0].Enqueue(barrier, 0) // in the default stream
	require.NoError(t, err)
	done, err := op.Wait(forever)
	require.True(t, done)
	require.NoError(t, err)
	op.Free()
	require.NoError(t, host[0].SetTimeout(time.Second))
	require.ErrorContains(t, host[0].Become(ranks[0].Group),
		"the group has its tensors on the host, and the new members theirs on cuda:0")
	endDevices(t, ranks, false)
}

func TestDeviceTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration // of the group
		own     time.Duration // of the first call; 0 for none
		held    bool          // the caller's stream does not come to the call
		text    string
	}{
		"of the group":             {300 * time.Millisecond, 0, false, "rank 1"},
		"of the group, own stream": {300 * time.Millisecond, 0, true, "the stream of this rank has not come"},
		"of the call":              {forever, 300 * time.Millisecond, false, "rank 1"},
		"of the call, own stream":  {forever, 300 * time.Millisecond, true, "the stream of this rank has not come"},
	} {
		t.Run(name, func(t *testing.T) {
			ranks := deviceWorld(t, 2, c.timeout)
			if c.held {
				ranks[0].driver.Hold(ranks[0].streams[0])
				ranks[0].put(t, 0, 10, 1)
			}
			begun := time.Now()
			call := ranks[0].reduce(0, 10)
			call.Timeout = c.own
			first, op := ranks[0].enqueue(t, call), ranks[0].enqueue(t, ranks[0].reduce(10, 10))
			done, err := op.Wait(time.Millisecond)
			require.False(t, done)
			require.NoError(t, err)
			ranks[0].fails(t, op, fault.Timeout, c.text)
			ranks[0].fails(t, first, fault.Timeout, c.text)
			require.Less(t, time.Since(begun), 10*time.Second)
			_, err = ranks[0].Enqueue(ranks[0].reduce(0, 10), 0)
			require.ErrorIs(t, err, fault.Timeout)
			require.True(t, ranks[0].Drain(forever))
			if c.held {
				ranks[0].driver.Release(ranks[0].streams[0])
			}
			endDevices(t, ranks, true)
		})
	}
}

// A wait that runs out changes nothing: neither where another rank is missing, nor where the
// caller's own stream does not come.
func TestDeviceOutlastsAWait(t *testing.T) {
	for _, held := range []bool{false, true} {
		ranks := deviceWorld(t, 2, forever)
		if held {
			ranks[0].driver.Hold(ranks[0].streams[0])
		}
		ranks[0].put(t, 0, 10, 1)
		op := ranks[0].enqueue(t, ranks[0].reduce(0, 10))
		done, err := op.Wait(10 * time.Millisecond)
		require.False(t, done)
		require.NoError(t, err)
		require.ErrorIs(t, op.Unended(), fault.Timeout)
		require.ErrorContains(t, op.Unended(), "seq 1: timeout: the time of this wait is over")
		if held {
			ranks[0].driver.Release(ranks[0].streams[0])
		}
		ranks[1].put(t, 0, 10, 2)
		other := ranks[1].enqueue(t, ranks[1].reduce(0, 10))
		for rank, each := range []*ccl.DeviceWork{op, other} {
			done, err = each.Wait(forever)
			require.True(t, done)
			require.NoError(t, err)
			require.NoError(t, each.Join(each.Group().Stream(ranks[rank].streams[1].Native())))
			require.EqualValues(t, 3, ranks[rank].get(t, 9))
			each.Free()
		}
		endDevices(t, ranks, false)
	}
}

// The streams that have joined a call go on when the group has failed.
func TestDeviceAbort(t *testing.T) {
	ranks := deviceWorld(t, 2, forever)
	ranks[0].driver.Hold(ranks[0].streams[0])
	ranks[0].put(t, 0, 10, 1)
	waiting := ranks[1].enqueue(t, ranks[1].reduce(0, 10))
	held := ranks[0].enqueue(t, ranks[0].reduce(0, 10))
	require.NoError(t, waiting.Join(waiting.Group().Stream(ranks[1].streams[1].Native())))
	require.NoError(t, ranks[0].Abort("enough"))
	ranks[0].fails(t, held, fault.Aborted, "enough")
	ranks[1].fails(t, waiting, fault.Aborted, "enough")
	ranks[0].driver.Release(ranks[0].streams[0])
	for _, r := range ranks {
		_, err := r.Enqueue(r.reduce(0, 10), 0)
		require.ErrorIs(t, err, fault.Aborted)
	}
	endDevices(t, ranks, true)
}

func TestDevicePeerCloses(t *testing.T) {
	ranks := deviceWorld(t, 2, forever)
	op := ranks[0].enqueue(t, ranks[0].reduce(0, 10))
	require.NoError(t, ranks[1].Close())
	ranks[0].fails(t, op, fault.PeerLeft, "rank 1")
	endDevices(t, ranks, true)
}

// A rank on a device and one on the host do not join.
func TestDeviceMismatch(t *testing.T) {
	machine := cudatest.New(cudatest.Options{Devices: 2})
	defer machine.Close()
	var groups []*Group
	for i, device := range []string{"cuda:1", "", "cuda:0"} {
		g, err := openOn(t, machine, Config{Name: "mixed", Rank: i, Size: 3, Timeout: forever, Device: device})
		require.NoError(t, err)
		groups = append(groups, g)
	}
	for i, err := range joinAll(groups...) {
		require.ErrorIs(t, err, fault.Mismatch)
		require.ErrorContains(t, err, "device of the tensors")
		if i == 0 {
			require.ErrorContains(t, err, "rank 0 has a CUDA device, rank 1 has none")
		}
	}
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
	require.Empty(t, machine.Leaks())
}

// Which device it is may differ between ranks. They choose a route; those that are left of a group
// have no windows any more.
func TestDevicesOfOneMachine(t *testing.T) {
	machine := cudatest.New(cudatest.Options{Devices: 2, Delay: -1})
	defer machine.Close()
	var groups []*Group
	for i, device := range []string{"cuda:1", "cuda:0", "cuda:1"} {
		cfg := Config{Name: "one machine", Rank: i, Size: 3, Timeout: forever, Device: device}
		g, err := openBy(t, machine, cfg, "auto")
		require.NoError(t, err)
		groups = append(groups, g)
	}
	for _, err := range joinAll(groups...) {
		require.NoError(t, err)
	}
	route := groups[0].comm.Load().Device().Route()
	require.Contains(t, route.Name, "windows")
	require.Equal(t, 2, route.Devices)
	require.Empty(t, descriptorsOf("goccl-device", "goccl-window"), "they keep memory")
	barrier := func(g *Group) error {
		op, err := g.Enqueue(&ccl.Call{Coll: dtype.Barrier}, 0)
		if err == nil {
			_, err = op.Wait(forever)
		}
		return err
	}
	for _, err := range each(t, groups, []int{0, 1, 2}, barrier) {
		require.NoError(t, err)
	}
	left := []*Group{groups[0].Empty(forever), groups[2].Empty(forever)}
	require.NoError(t, groups[1].Close())
	for _, err := range each(t, left, []int{0, 1}, func(g *Group) error {
		return g.ShrinkFrom(groups[2*slices.Index(left, g)], ccl.Majority, []int{1})
	}) {
		require.NoError(t, err)
	}
	for _, err := range each(t, left, []int{0, 1}, barrier) {
		require.NoError(t, err)
	}
	route = left[1].comm.Load().Device().Route()
	require.Equal(t, "staged", route.Name)
	require.Contains(t, route.Why, "rank 0 has not brought a window")
	for _, g := range append(groups, left...) {
		require.NoError(t, g.Close())
	}
	machine.Check(t)
	require.Empty(t, machine.Leaks())
}

// descriptorsOf returns the open descriptors of shared memory with these names.
func descriptorsOf(names ...string) (open []string) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, each := range all {
		link, _ := os.Readlink(each)
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(link, name) }) {
			open = append(open, link)
		}
	}
	return open
}

func TestDeviceIsRefused(t *testing.T) {
	retain := []cudatest.Failure{{Call: "cuDevicePrimaryCtxRetain", Nth: 1, Code: 2}}
	for _, c := range []struct {
		device  string
		machine cudatest.Options
		code    fault.Code
		text    string
	}{
		{"gpu", cudatest.Options{}, fault.Invalid, `device "gpu" is not of the form cuda:0`},
		{"cuda:", cudatest.Options{}, fault.Invalid, `device "cuda:" is not`},
		{"cuda:-1", cudatest.Options{}, fault.Invalid, `device "cuda:-1" is not`},
		{"cuda:1", cudatest.Options{}, fault.NotSupported,
			"there is no cuda:1: the driver offers this process one device, cuda:0 (CUDA_VISIBLE_DEVICES"},
		{"cuda:2", cudatest.Options{Devices: 2}, fault.NotSupported, "2 devices, cuda:0 to cuda:1"},
		{"cuda:0", cudatest.Options{Devices: -1}, fault.NotSupported, "offers this process no device"},
		{"cuda:0", cudatest.Options{Faults: cudatest.Faults{NoWords: true}}, fault.NotSupported,
			"device 0 (memory of the host): its streams cannot wait for memory"},
		{"cuda:0", cudatest.Options{Faults: cudatest.Faults{Fail: retain}}, fault.System, "cuDevicePrimaryCtxRetain"},
	} {
		t.Run(fmt.Sprint(c.device, " ", c.text), func(t *testing.T) {
			machine := cudatest.New(c.machine)
			defer machine.Close()
			_, err := openOn(t, machine, Config{Name: "refused", Size: 1, Timeout: forever, Device: c.device})
			require.ErrorIs(t, err, c.code)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "open")
			require.Empty(t, machine.Leaks())
		})
	}
}

func TestNoDriver(t *testing.T) {
	if _, err := driver.Open(); err == nil {
		t.Skip("this machine has one")
	}
	_, err := Open(Config{Name: "refused", Size: 1, Timeout: forever, Device: "cuda:0", Shim: "test"})
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "libcuda.so.1")
}

// A rank that has joined and finds then that its device does not do fails the group.
func TestDeviceFailsWhileJoining(t *testing.T) {
	machines := []*cudatest.Driver{cudatest.New(cudatest.Options{}), cudatest.New(cudatest.Options{})}
	var groups []*Group
	for i, machine := range machines {
		defer machine.Close()
		g, err := openOn(t, machine, Config{Name: "late", Rank: i, Size: 2, Timeout: forever, Device: "cuda:0"})
		require.NoError(t, err)
		groups = append(groups, g)
	}
	machines[1].SetFaults(cudatest.Faults{Fail: []cudatest.Failure{{Call: "cuMemHostRegister", Nth: 1, Code: 2}}})
	errs := joinAll(groups...)
	require.ErrorContains(t, errs[1], "cuMemHostRegister")
	if errs[0] == nil {
		op, err := groups[0].Enqueue(&ccl.Call{Coll: dtype.Barrier}, 0)
		if err == nil {
			_, err = op.Wait(forever)
		}
		errs[0] = err
	}
	require.ErrorIs(t, errs[0], fault.System)
	require.ErrorContains(t, errs[0], "rank 1")
	require.ErrorContains(t, errs[0], "cuMemHostRegister")
	for i, g := range groups {
		require.NoError(t, g.Close())
		require.Empty(t, machines[i].Leaks())
	}
}

// The ranks that are left go on on their devices, and groups get others in their place.
func TestDeviceShrinkAndBecome(t *testing.T) {
	ranks := deviceWorld(t, 3, forever)
	require.NoError(t, ranks[1].Close())
	smaller := []*Group{ranks[0].Empty(forever), nil, ranks[2].Empty(forever)}
	errs := make([]error, 3)
	var all sync.WaitGroup
	for _, i := range []int{0, 2} {
		all.Go(func() { errs[i] = smaller[i].ShrinkFrom(ranks[i].Group, ccl.Majority, []int{1}) })
	}
	all.Wait()
	for _, i := range []int{0, 2} {
		require.NoError(t, errs[i])
		require.Equal(t, "cuda:0", smaller[i].Device())
		require.Equal(t, []int{0, 2}, smaller[i].Members())
		require.NoError(t, ranks[i].Become(smaller[i]))
	}
	for _, i := range []int{0, 2} {
		ranks[i].put(t, 0, 10, float32(i+1))
		op := ranks[i].enqueue(t, ranks[i].reduce(0, 10))
		require.EqualValues(t, 1, op.Seq())
		require.NoError(t, op.Join(op.Group().Stream(ranks[i].streams[1].Native())))
		op.Free()
	}
	for _, i := range []int{0, 2} {
		require.EqualValues(t, 4, ranks[i].get(t, 0))
	}
	endDevices(t, ranks, false)
}
