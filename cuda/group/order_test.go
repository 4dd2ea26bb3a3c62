package group_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
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

// Whatever call that orders something is left out, the driver sees that.
func TestEachOrderingCounts(t *testing.T) {
	total := lameSequence(t, -1, nil)
	require.Greater(t, total, 30)
	for n := range total {
		var left string
		reports := 0
		// Most are seen at once, whatever the order of execution.
		for try := 0; try < 3 && reports == 0; try++ {
			reports = lameSequence(t, n, &left)
		}
		require.NotZero(t, reports, "ordering call %d of %d may be left out: %s", n, total, left)
	}
}

// lameSequence makes calls with one ordering call of rank 0's device left out. It returns how many
// reports that made; with none left out, how many ordering calls there are.
func lameSequence(t *testing.T, leaveOut int, left *string) int {
	seen := 0
	device := cudatest.Options{Delay: -1, Stuck: 100 * time.Millisecond}
	lame := device
	lame.LeaveOut = func(o cudatest.Ordering) bool {
		seen++
		if seen-1 == leaveOut {
			*left = fmt.Sprint(o)
			return true
		}
		return false
	}
	w := worldOf(t, []cudatest.Options{lame, device}, ccl.Options{CudaBuffSize: 256 << 10})
	const count = 90_000 // five pieces or more
	for i, r := range w {
		r.put(t, 0, random(uint64(i), 4*count))
	}
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast} {
		for i, r := range w {
			length := func(int) int { return count }
			b := buffersOf(coll, dtype.I32, 2, i, 1, true, length, length)
			op, err := r.Enqueue(b.call(ccl.Call{Coll: coll, Type: dtype.I32, Op: ccl.Sum, Root: 1}, pointerOf(r.device.Ptr()), 4),
				r.stream)
			require.NoError(t, err)
			if err := op.Join(r.stream); err != nil {
				return 1 // the contract refused
			}
			op.Free()
		}
	}
	for _, r := range w {
		r.fetch(t, 0, 4*count)
	}
	begin := time.Now()
	for _, r := range w {
		require.NoError(t, r.ctx.Enter(false))
		for {
			done, err := r.stream.Done()
			require.NoError(t, err)
			if done {
				r.ctx.(cuda.Observer).HostAccess(r.host.Ptr(), 4*count, false)
				break
			}
			if len(w[0].driver.Reports()) > 0 {
				break
			}
			require.Less(t, time.Since(begin), hang)
			time.Sleep(100 * time.Microsecond)
		}
		r.ctx.Leave()
	}
	reports := len(w[0].driver.Reports())
	for _, r := range w {
		r.DeviceGroup.Close()
	}
	if leaveOut < 0 {
		require.Empty(t, w[0].driver.Reports())
		return w[0].driver.Orderings()
	}
	return reports
}
