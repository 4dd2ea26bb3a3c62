package group_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/driver"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/internal/mem"
	_ "github.com/goccl/goccl/internal/scratch"
)

// On a GPU, run the tests TestMatrix, TestSameOrderOfOperands, TestLengths, TestUnequalBlocks,
// TestMessages, TestWindowsMatrix, TestWindowsLengths, TestWindowsUnequalBlocks, TestLendMatrix,
// TestLendLengths, TestLendUnequalBlocks, TestInterpretedMatrix and TestInterpretedUnequalBlocks,
// with CUDA_DEVICE_MAX_CONNECTIONS=32, since all ranks share a process.
var gpu = flag.Bool("group.gpu", false, "ranks share the first GPU of this machine, in place of a simulated device each")

// hang is a time that nothing here takes.
const hang = 60 * time.Second

// rank is one rank of a device group, with a device and a driver of its own, as if it were a
// process.
type rank struct {
	*ccl.DeviceGroup
	driver *cudatest.Driver // nil on a real one
	ctx    cuda.Context
	stream cuda.Stream // the caller's
	device cuda.Memory
	host   cuda.Registered // by which tests reach the device's memory
	block  *mem.Block
	arena  *share.Arena      // in which device is; or nil
	cpu    *ccl.Communicator // of a group of the same ranks on the processor

	captures bool // issue makes a graph of each call
}

// memory is how much each rank has on the device, and to exchange with it, if a test does not say.
const memory = 4 << 20

// world makes a device group of n ranks.
func world(t testing.TB, n int, device cudatest.Options, opts ccl.GroupOptions) []*rank {
	t.Helper()
	devices := make([]cudatest.Options, n)
	for i := range devices {
		devices[i] = device
		devices[i].Seed = device.Seed*100 + uint64(i)
	}
	return worldOf(t, devices, opts, memory)
}

// worldOf makes a device group with a rank on each device, which has so many bytes of memory. No
// machine knows of memory of another in the same process, so the group is staged.
func worldOf(t testing.TB, devices []cudatest.Options, opts ccl.GroupOptions, memory int) []*rank {
	t.Helper()
	opts.CudaRoute = "staged"
	drivers := make([]*cudatest.Driver, len(devices))
	for i := range devices {
		drivers[i] = cudatest.New(devices[i])
		t.Cleanup(drivers[i].Close)
	}
	return ranksOn(t, drivers, opts, memory)
}

// ranksOn makes a device group with a rank on the first device of each driver.
func ranksOn(t testing.TB, drivers []*cudatest.Driver, opts ccl.GroupOptions, memory int) []*rank {
	t.Helper()
	return ranksOnDevices(t, drivers, 1, opts, memory)
}

// ranksOnDevices makes a device group whose ranks are on so many devices of their drivers in turn.
// Those that lend have their memory in an arena.
func ranksOnDevices(t testing.TB, drivers []*cudatest.Driver, devices int, opts ccl.GroupOptions, memory int,
	lends ...bool) []*rank {
	t.Helper()
	n := len(drivers)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if opts.Transport == "" {
		opts.Transport = "auto"
	}
	node, comms, err := ccl.Local(ctx, n, opts)
	require.NoError(t, err)
	t.Cleanup(func() { node.Close() })
	onProcessor := opts
	if onProcessor.CudaRoute = ""; opts.CudaRoute != "staged" {
		onProcessor.Determinism = 4 // all plans over windows combine operands in the order of the ranks
	}
	_, cpu, err := localIn(ctx, node, n, onProcessor)
	require.NoError(t, err)
	ranks := ranksOf(t, comms, drivers, devices, opts, memory, lends...)
	for i, r := range ranks {
		r.cpu = cpu[i]
	}
	return ranks
}

// ranksOf makes a device group of comms. Those that lend have their memory in an arena.
func ranksOf(t testing.TB, comms []*ccl.Communicator, drivers []*cudatest.Driver, devices int, opts ccl.GroupOptions,
	memory int, lends ...bool) []*rank {
	t.Helper()
	n := len(drivers)
	ranks := make([]*rank, n)
	for i := range ranks {
		r := new(rank)
		var machine cuda.Driver = drivers[i]
		device := i % devices
		var err error
		if *gpu {
			machine, err = driver.Open()
			require.NoError(t, err)
			device = 0
		} else {
			r.driver = drivers[i]
		}
		r.ctx, err = machine.Retain(device)
		require.NoError(t, err)
		if i < len(lends) && lends[i] {
			r.makeArena(t, machine, device, 2*memory)
		}
		ranks[i] = r
	}
	for _, err := range each(n, func(i int) (err error) {
		window, err := ccl.NewDeviceWindow(ranks[i].ctx, opts, n)
		if err == nil && ranks[i].arena != nil {
			err = window.Lend(ranks[i].arena)
		}
		if err != nil {
			return err
		}
		ranks[i].DeviceGroup, err = comms[i].OnDevice(ranks[i].ctx, window)
		return err
	}) {
		require.NoError(t, err)
	}
	for _, r := range ranks {
		r.furnish(t, memory)
	}
	return ranks
}

// furnish gives a rank memory, and a stream for its calls.
func (r *rank) furnish(t testing.TB, memory int) {
	t.Helper()
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	var err error
	r.stream, err = r.ctx.NewStream(0)
	require.NoError(t, err)
	if r.arena != nil {
		r.device, err = r.inArena(memory)
	} else {
		r.device, err = r.ctx.Alloc(memory)
	}
	require.NoError(t, err)
	r.block, err = mem.Alloc(memory)
	require.NoError(t, err)
	r.host, err = r.ctx.Register(r.block.Bytes())
	require.NoError(t, err)
}

// firstOfEach returns the first rank of each driver.
func firstOfEach(w []*rank) (first []*rank) {
	for i, r := range w {
		if !slices.ContainsFunc(w[:i], func(other *rank) bool { return other.driver == r.driver }) {
			first = append(first, r)
		}
	}
	return first
}

// localIn makes one more group of ranks of this process.
func localIn(ctx context.Context, node *ccl.Node, n int, opts ccl.GroupOptions) (
	*ccl.Node, []*ccl.Communicator, error) {
	endpoints, addresses, comms := make([]*ccl.Endpoint, n), make([][]byte, n), make([]*ccl.Communicator, n)
	for i := range n {
		var err error
		if endpoints[i], err = node.Open(ccl.Config{Name: "processor", Rank: i, Size: n, Options: opts}); err != nil {
			return nil, nil, err
		}
		addresses[i] = endpoints[i].Address()
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { comms[i], errs[i] = endpoints[i].Join(ctx, addresses) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return node, comms, nil
}

// end ends the ranks and checks that the driver has seen nothing wrong.
func end(t testing.TB, ranks []*rank) {
	t.Helper()
	bury(t, ranks)
	for _, r := range ranks {
		if r.driver != nil {
			r.driver.Check(t)
		}
	}
}

// bury ends ranks whose group has failed: the streams that were let go have raced for slots, and
// for outputs, which are undefined, and hosts have written words of peers.
func bury(t testing.TB, ranks []*rank) {
	t.Helper()
	for _, r := range ranks {
		require.NoError(t, r.ctx.Enter(false))
		require.NoError(t, r.stream.Synchronize())
		r.ctx.Leave()
	}
	for _, r := range ranks {
		r.leave(t)
	}
	for _, r := range ranks {
		if r.arena != nil {
			require.NoError(t, r.arena.Close())
		}
	}
	for _, r := range ranks {
		if r.driver == nil {
			continue
		}
		require.Empty(t, r.driver.Leaks())
		for _, report := range r.driver.Reports() {
			again := report.Kind == cudatest.Misuse && strings.Contains(report.Text, "a word goes back")
			require.True(t, report.Kind == cudatest.Race || again, report.String())
		}
	}
}

// leave gives back what the rank has, and leaves its group. The caller's stream has ended.
func (r *rank) leave(t testing.TB) {
	t.Helper()
	r.release(t)
	require.NoError(t, r.DeviceGroup.Close())
}

func (r *rank) release(t testing.TB) {
	t.Helper()
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	require.NoError(t, r.host.Free())
	require.NoError(t, r.device.Free())
	require.NoError(t, r.stream.Destroy())
	require.NoError(t, r.block.Free())
}

// put copies bytes to the device's memory, in the caller's stream.
func (r *rank) put(t testing.TB, at int, data []byte) {
	if len(data) == 0 {
		return
	}
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	copy(r.host.Host()[at:], data)
	r.observe(at, len(data), true)
	require.NoError(t, r.stream.Copy(r.device.Ptr()+cuda.Ptr(at), r.host.Ptr()+cuda.Ptr(at), len(data)))
}

// observe tells the driver that the test has used its memory, if the driver wants to know.
func (r *rank) observe(at, bytes int, write bool) {
	if o, ok := r.ctx.(cuda.Observer); ok {
		o.HostAccess(r.host.Ptr()+cuda.Ptr(at), bytes, write)()
	}
}

// fetch enqueues the copy of bytes of the device's memory to the host, from where get takes them.
func (r *rank) fetch(t testing.TB, at, n int) {
	if n == 0 {
		return
	}
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	require.NoError(t, r.stream.Copy(r.host.Ptr()+cuda.Ptr(at), r.device.Ptr()+cuda.Ptr(at), n))
}

// overwrite enqueues the copy of bytes of the device's memory to another place.
func (r *rank) overwrite(t testing.TB, at, from, n int) {
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	require.NoError(t, r.stream.Copy(r.device.Ptr()+cuda.Ptr(at), r.device.Ptr()+cuda.Ptr(from), n))
}

// get returns what was fetched when the caller's stream has ended.
func (r *rank) get(t testing.TB, at, n int) []byte {
	if n == 0 {
		return nil
	}
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	require.NoError(t, r.stream.Synchronize())
	r.observe(at, n, false)
	return r.host.Host()[at : at+n]
}

// blocks describes the buffers of a call of one rank: the lengths of the blocks of In and Out, and
// where they are, one after the other with gaps, from 0 on.
type buffers struct {
	in, out     []int // elements
	atIn, atOut []int // bytes
	bytes       int
}

const gap = 24

// buffersOf lays out the blocks of a call. In place, blocks that may share memory do.
func buffersOf(coll dtype.Collective, typ dtype.Type, ranks, rank, root int, inPlace bool,
	in, out func(i int) int) buffers {
	var b buffers
	size := typ.Size()
	add := func(n int) int {
		at := b.bytes
		b.bytes += (n*size+15)&^15 + gap&^7
		return at
	}
	nIn, nOut := coll.InBlocks(ranks, rank, root), coll.OutBlocks(ranks, rank, root)
	for i := range nIn {
		b.in = append(b.in, in(i))
		b.atIn = append(b.atIn, add(in(i)))
	}
	for i := range nOut {
		b.out = append(b.out, out(i))
		shared := -1
		switch {
		case !inPlace || nIn == 0:
		case nIn == nOut:
			shared = i
		case nIn == 1 && i == rank:
			shared = 0
		case nOut == 1:
			shared = rank
		}
		if shared >= 0 {
			b.atOut = append(b.atOut, b.atIn[shared])
			continue
		}
		b.atOut = append(b.atOut, add(out(i)))
	}
	return b
}

// call makes a call whose buffers begin at base.
func (b *buffers) call(c ccl.Call, base unsafe.Pointer, size int) *ccl.Call {
	c.In, c.Out = nil, nil
	for i, n := range b.in {
		c.In = append(c.In, ccl.Block{Ptr: unsafe.Add(base, b.atIn[i]), Count: n})
	}
	for i, n := range b.out {
		c.Out = append(c.Out, ccl.Block{Ptr: unsafe.Add(base, b.atOut[i]), Count: n})
	}
	return &c
}

// each runs f for all ranks at the same time.
func each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errs
}

// pointerOf makes an address of the device one that a Block can hold.
func pointerOf(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// same runs a call on the processor and on the device, and compares all bytes of the buffers.
// length returns the elements of block i of In or Out of a rank.
func same(t testing.TB, ranks []*rank, c ccl.Call, inPlace bool, seed uint64,
	in, out func(rank, i int) int) {
	t.Helper()
	size := c.Type.Size()
	what := fmt.Sprintf("%v of %v (%v), %d ranks, in place %v", c.Coll, c.Type, c.Op, len(ranks), inPlace)
	all := make([]buffers, len(ranks))
	want := make([][]byte, len(ranks))
	for i := range ranks {
		all[i] = buffersOf(c.Coll, c.Type, len(ranks), i, c.Root, inPlace,
			func(block int) int { return in(i, block) }, func(block int) int { return out(i, block) })
		require.LessOrEqual(t, all[i].bytes, memory, what)
		want[i] = random(seed+uint64(i), all[i].bytes+8)
		ranks[i].put(t, 0, want[i][:all[i].bytes])
	}
	for _, err := range each(len(ranks), func(i int) error {
		return ranks[i].cpu.Do(context.Background(), all[i].call(c, unsafe.Pointer(&want[i][0]), size))
	}) {
		require.NoError(t, err, what)
	}
	for _, err := range each(len(ranks), func(i int) error {
		r := ranks[i]
		return r.issue(all[i].call(c, pointerOf(r.device.Ptr()), size))
	}) {
		require.NoError(t, err, what)
	}
	for i, r := range ranks {
		r.fetch(t, 0, all[i].bytes)
	}
	for i, r := range ranks {
		got := r.get(t, 0, all[i].bytes)
		if string(got) != string(want[i][:all[i].bytes]) {
			t.Fatalf("%s, rank %d: %s", what, i, firstDifference(got, want[i]))
		}
	}
}

func firstDifference(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
	return "no difference"
}

// noise is what random takes its bytes from. Its length is prime, so that no two chunks are alike.
var noise = func() []byte {
	b := make([]byte, 1_048_573)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return b
}()

// random returns n bytes that depend on the seed. It copies them: under the race detector a loop
// takes long.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	from := rand.NewPCG(seed, 1).Uint64() % uint64(len(noise))
	for done := copy(b, noise[from:]); done < n; {
		done += copy(b[done:], noise)
	}
	return b
}
