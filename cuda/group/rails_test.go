package group_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// with returns options of a group whose plans have an algorithm between hosts.
func with(opts ccl.GroupOptions, outer string) ccl.GroupOptions {
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		if opts.Algo != "" {
			opts.Algo += ","
		}
		opts.Algo += coll.String() + "=hierarchical.window." + outer
	}
	return opts
}

// Every collective has the bits that the same plan has on the processor, on several hosts, too.
func TestRailsMatrix(t *testing.T) {
	for i, shape := range [][2]int{{2, 2}, {2, 3}, {3, 2}, {2, 4}} {
		if testing.Short() && i > 0 {
			break
		}
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			t.Parallel()
			outer := "ring"
			if shape[1] > 2 { // with more operands, the order in a ring depends on how the call is cut
				outer = "direct"
			}
			w := network(t, networkOf(shape[0], shape[1]), quick, with(eitherWindows[i%2], outer), memory)
			require.Equal(t, eitherWindows[i%2].CudaRoute, w[0].Route().Name)
			everyCall(t, w)
			end(t, w)
		})
	}
}

// Lengths from none to some elements more than fit one piece, and blocks of different lengths.
func TestRailsLengths(t *testing.T) {
	w := network(t, networkOf(2, 2), quick, with(overWindows, "ring"), memory)
	unequal := []int{40_000, 0, 7, 12_345}
	for seed, inPlace := range []bool{false, true} {
		same(t, w, ccl.Call{Coll: dtype.AllGather, Type: dtype.F64}, inPlace, uint64(seed),
			func(rank, _ int) int { return unequal[rank] }, func(_, i int) int { return unequal[i] })
		same(t, w, ccl.Call{Coll: dtype.ReduceScatter, Type: dtype.F32, Op: ccl.Sum}, inPlace, uint64(seed),
			func(_, i int) int { return unequal[i] }, func(rank, _ int) int { return unequal[rank] })
	}
	lengths(t, w)
}

// Every algorithm that can run between hosts does, on ranks of hosts in any order.
func TestRailsAlgorithms(t *testing.T) {
	for _, hosts := range [][]int{{0, 1, 1, 0}, {0, 1, 2, 2, 1, 0}, {0, 0, 1, 1, 2, 2, 3, 3}} {
		for _, a := range algo.For(dtype.AllReduce) {
			name := "hierarchical.window." + a.Name
			if _, err := algo.Find(dtype.AllReduce, name); err != nil {
				continue
			}
			if testing.Short() && (len(hosts) > 4 || a.Name != "ring") || !*full && len(hosts) > 4 && a.Name != "ring" {
				continue
			}
			t.Run(fmt.Sprint(hosts, " ", a.Name), func(t *testing.T) {
				opts := overWindows
				opts.Algo = "all_reduce=" + name
				w := network(t, hosts, quick, opts, memory)
				length := func(_, _ int) int { return 70_000 }
				same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum}, true, 1, length, length)
				end(t, w)
			})
		}
	}
}

// Random calls, of which several are in flight, in random order of execution, on several hosts.
func TestRailsOrder(t *testing.T) {
	inParts(t, 12, 8, func(t *testing.T, seeds iter.Seq[uint64]) {
		for seed := range seeds {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { railsSequence(t, seed) }) // so it is cleaned up
		}
	})
}

// railsSequence makes some calls at random, each on the results of the last one but one: two are in
// flight that nothing orders but their group.
func railsSequence(t *testing.T, seed uint64) {
	const area = 768 << 10 // of every second call
	const bytes = 2 * area
	dice := rand.New(rand.NewPCG(seed, 11))
	shape := [][2]int{{2, 2}, {2, 3}, {3, 2}, {2, 4}}[dice.IntN(4)]
	n := shape[0] * shape[1]
	outer := []string{"ring", "direct"}[dice.IntN(2)]
	device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond}
	w := network(t, networkOf(shape[0], shape[1]), device, with(eitherWindows[seed%2], outer), bytes)
	want := make([][]byte, n)
	for i, r := range w {
		want[i] = random(seed*10+uint64(i), bytes)
		r.put(t, 0, want[i])
	}
	var ops []*ccl.DeviceWork
	for k := range 3 + dice.IntN(4) {
		colls := []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter, dtype.AllReduce,
			dtype.Broadcast}
		call := ccl.Call{Coll: colls[dice.IntN(len(colls))], Type: dtype.I32, Op: ccl.Sum}
		count := 1 + dice.IntN(60_000)
		if call.Coll == dtype.AllGather || call.Coll == dtype.ReduceScatter {
			count = 1 + count/4
		}
		inPlace := dice.IntN(2) == 0
		if !inPlace && count > 20_000 {
			count /= 2
		}
		length := func(int) int { return count }
		at := k % 2 * area
		for i := range w {
			b := buffersOf(call.Coll, call.Type, n, i, call.Root, inPlace, length, length)
			require.LessOrEqual(t, b.bytes, area)
			if k >= 2 {
				require.NoError(t, ops[(k-2)*n+i].Join(w[i].stream))
			}
			op, err := w[i].Enqueue(b.call(call, pointerOf(w[i].device.Ptr()+cuda.Ptr(at)), 4), w[i].stream)
			require.NoError(t, err)
			ops = append(ops, op)
		}
		for _, err := range each(n, func(i int) error {
			b := buffersOf(call.Coll, call.Type, n, i, call.Root, inPlace, length, length)
			return w[i].cpu.Do(context.Background(), b.call(call, unsafe.Pointer(&want[i][at]), 4))
		}) {
			require.NoError(t, err)
		}
	}
	for i, op := range ops {
		require.NoError(t, op.Join(w[i%n].stream))
		op.Free()
	}
	for i, r := range w {
		r.fetch(t, 0, bytes)
		got := r.get(t, 0, bytes)
		require.True(t, string(got) == string(want[i]), "seed %d, rank %d: %s", seed, i, firstDifference(got, want[i]))
	}
	end(t, w)
}

// While the messages of a piece do not come, the devices of a host have reduced the next one.
func TestRailsBeginAhead(t *testing.T) {
	var reductions atomic.Int32
	traced, plain := quick, quick
	traced.Stuck, plain.Stuck = -1, -1
	traced.Trace = func(line string) {
		if strings.Contains(line, "goccl_reduce") {
			reductions.Add(1)
		}
	}
	w := networkWith(t, networkOf(2, 2), []cudatest.Options{traced, plain}, with(overWindows, "ring"), memory)
	for _, r := range w[2:] {
		r.driver.Hold(r.stream)
	}
	var ops []*ccl.DeviceWork
	for _, r := range w {
		ops = append(ops, r.begin(t, r.some(dtype.AllReduce, 100_000)))
	}
	w[0].driver.Settle()
	require.EqualValues(t, 2*2*2, reductions.Load(), "of both ranks, two pieces, and two chunks each")
	for _, r := range w[2:] {
		r.driver.Release(r.stream)
	}
	for _, op := range ops {
		done, err := op.Wait(hang)
		require.True(t, done)
		require.NoError(t, err)
		op.Free()
	}
	end(t, w)
}
