package group_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Random calls, of which several are in flight, in random order of execution: the driver sees no
// access that nothing orders, and the results are those of the processor. GOCCL_SEEDS seeds, 50 if
// unset.
func TestOrder(t *testing.T) {
	seeds := 50
	if text := os.Getenv("GOCCL_SEEDS"); text != "" {
		var err error
		seeds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for seed := range seeds {
		sequence(t, uint64(seed))
	}
}

// sequence makes some calls at random, each on the results of the ones before.
func sequence(t *testing.T, seed uint64) {
	random64 := rand.New(rand.NewPCG(seed, 7))
	n := 2 + random64.IntN(2)
	w := world(t, n, cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond}, ccl.Options{CudaBuffSize: 256 << 10})
	const count = 60_000
	want := make([][]byte, n)
	for i, r := range w {
		want[i] = random(seed*10+uint64(i), 4*count)
		r.put(t, 0, want[i])
	}
	var ops []*ccl.DeviceWork
	for range 3 + random64.IntN(4) {
		colls := []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.Reduce}
		call := ccl.Call{Coll: colls[random64.IntN(3)], Type: dtype.I32, Op: ccl.Sum, Root: random64.IntN(n)}
		length := 1 + random64.IntN(count)
		in := func(int) int { return length }
		for i := range w {
			b := buffersOf(call.Coll, call.Type, n, i, call.Root, true, in, in)
			op, err := w[i].Enqueue(b.call(call, pointerOf(w[i].device.Ptr()), 4), w[i].stream)
			require.NoError(t, err)
			ops = append(ops, op)
			require.NoError(t, op.Join(w[i].stream))
		}
		for _, err := range each(n, func(i int) error {
			b := buffersOf(call.Coll, call.Type, n, i, call.Root, true, in, in)
			return w[i].cpu.Do(context.Background(), b.call(call, unsafe.Pointer(&want[i][0]), 4))
		}) {
			require.NoError(t, err)
		}
	}
	for i, r := range w {
		r.fetch(t, 0, 4*count)
		got := r.get(t, 0, 4*count)
		require.True(t, string(got) == string(want[i]), "seed %d, rank %d: %s", seed, i, firstDifference(got, want[i]))
	}
	for _, op := range ops {
		op.Free()
	}
	end(t, w)
}

// Whatever call that orders something is left out, the driver sees that: in calls that end, or in
// calls that are aborted before the caller's stream has come to them. A word that is not written
// does no harm if it is written again later: what waits for it waits longer.
func TestEachOrderingCounts(t *testing.T) {
	total, _, _, reports := lameSequence(t, -1, false)
	require.Empty(t, reports)
	require.Greater(t, total, 30)
	for n := range total {
		var left cudatest.Ordering
		seen := false
		for _, aborted := range []bool{false, false, true} { // the order of execution varies
			var found []cudatest.Report
			var right bool
			_, left, right, found = lameSequence(t, n, aborted)
			written := left.Kind == cudatest.WriteWord || left.Kind == cudatest.Store
			if seen = len(found) > 0 || written && right; seen {
				break
			}
		}
		require.True(t, seen, "ordering call %d of %d may be left out: %s", n, total, left)
	}
}

// lameSequence makes calls with one ordering call of rank 0's device left out, and fetches the
// results. It returns the number of ordering calls, the one that was left out, and what the driver
// reported. Of a sequence that is aborted, in which the group's streams may race for slots and
// outputs, these are only races with the caller's stream.
func lameSequence(t *testing.T, leaveOut int, abort bool) (
	total int, left cudatest.Ordering, right bool, found []cudatest.Report) {
	device := cudatest.Options{Delay: -1, Stuck: 100 * time.Millisecond}
	lame := device
	leave, which := cudatest.Nth(leaveOut)
	lame.LeaveOut = leave
	w := worldOf(t, []cudatest.Options{lame, device}, ccl.Options{CudaBuffSize: 256 << 10})
	if abort {
		w[0].driver.Hold(w[0].stream)
	}
	const count, second = 90_000, 1 << 20 // six pieces; where the buffers of the second call are
	want, other := random(0, 4*count), random(1, 4*count)
	for _, r := range w {
		r.put(t, 0, want)
	}
	w[1].put(t, 0, other)
	w[1].put(t, second, other)
	var ops []*ccl.DeviceWork
	length := func(int) int { return count }
	for k, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast} {
		for i, r := range w {
			b := buffersOf(coll, dtype.I32, 2, i, 1, true, length, length)
			call := b.call(ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum, Root: 1},
				pointerOf(r.device.Ptr()+cuda.Ptr(k*second)), 4)
			op, err := r.Enqueue(call, r.stream)
			require.NoError(t, err)
			ops = append(ops, op)
		}
	}
	for i, op := range ops {
		if err := op.Join(w[i%2].stream); err != nil {
			found = append(found, cudatest.Report{Text: err.Error()}) // the contract refused
		}
		op.Free()
	}
	for i := 0; i < len(want); i += 4 {
		sum := binary.NativeEndian.Uint32(want[i:]) + binary.NativeEndian.Uint32(other[i:])
		binary.NativeEndian.PutUint32(want[i:], sum)
	}
	for _, r := range w {
		r.fetch(t, 0, 4*count)
		r.fetch(t, second, 4*count)
	}
	if abort {
		w[0].Abort(fault.New(fault.Aborted, "the test ends it"))
		time.Sleep(2 * time.Millisecond) // in which streams that nothing holds go on
		w[0].driver.Release(w[0].stream)
	}
	begin := time.Now()
	for _, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		for len(w[0].driver.Reports()) == 0 || abort {
			done, err := r.stream.Done()
			require.NoError(t, err)
			if done {
				r.ctx.(cuda.Observer).HostAccess(r.host.Ptr(), second+4*count, false)
				right = string(r.host.Host()[:4*count]) == string(want) &&
					string(r.host.Host()[second:second+4*count]) == string(other)
				break
			}
			require.Less(t, time.Since(begin), hang)
			time.Sleep(100 * time.Microsecond)
		}
		r.ctx.Leave()
	}
	caller := fmt.Sprintf("stream %d of", (w[0].stream.Native()-0x5000)/16)
	for _, report := range w[0].driver.Reports() {
		if !abort || report.Kind == cudatest.Race && strings.Contains(report.Text, caller) {
			found = append(found, report)
		}
	}
	total = w[0].driver.Orderings()
	for _, r := range w {
		r.DeviceGroup.Close()
	}
	left, _ = which()
	return total, left, right, found
}
