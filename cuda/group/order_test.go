package group_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Random calls, of which several are in flight, in random order of execution: the driver sees no
// access that nothing orders, and the results are those of the processor.
func TestOrder(t *testing.T) {
	inOrder(t, func(t *testing.T, n int, seed uint64) []*rank {
		devices := make([]cudatest.Options, n)
		for i := range devices {
			devices[i] = cudatest.Options{Seed: 100*seed + uint64(i), Delay: 20 * time.Microsecond}
		}
		return worldOf(t, devices, ccl.GroupOptions{CudaBuffSize: 256 << 10}, 256<<10)
	})
}

// inOrder makes random calls in groups that make makes.
func inOrder(t *testing.T, make func(t *testing.T, n int, seed uint64) []*rank) {
	inParts(t, 20, 10, func(t *testing.T, seeds iter.Seq[uint64]) {
		for seed := range seeds {
			sequence(t, seed, make)
		}
	})
}

// inParts has run go over so many seeds, fewer with -short and 1,000 in a full run, in four parts
// at the same time.
func inParts(t *testing.T, seeds, short int, run func(t *testing.T, seeds iter.Seq[uint64])) {
	switch {
	case *full:
		seeds = 1000
	case testing.Short():
		seeds = short
	}
	const parts = 4
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			run(t, func(yield func(uint64) bool) {
				for seed := part; seed < seeds && yield(uint64(seed)); seed += parts {
				}
			})
		})
	}
}

// sequence makes some calls at random, each on the results of the ones before.
func sequence(t *testing.T, seed uint64, world func(t *testing.T, n int, seed uint64) []*rank) {
	sequenceWith(t, seed, world, false)
}

// sequenceWith does so while another thread of each rank frees memory, or not. If one does, each
// rank makes its calls in a thread of its own, which the driver may keep waiting for the others.
func sequenceWith(t *testing.T, seed uint64, world func(t *testing.T, n int, seed uint64) []*rank, freeing bool) {
	random64 := rand.New(rand.NewPCG(seed, 7))
	n := 2 + random64.IntN(2)
	const count = 60_000
	w := world(t, n, seed)
	stop, enqueue := func() {}, one
	if freeing {
		stop, enqueue = frees(t, w), each
	}
	want := make([][]byte, n)
	for i, r := range w {
		want[i] = random(seed*10+uint64(i), 4*count)
		r.put(t, 0, want[i])
	}
	var ops []*ccl.DeviceWork
	for range 3 + random64.IntN(4) {
		colls := []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.Reduce}
		call := ccl.Call{Coll: colls[random64.IntN(3)], Type: dtype.I32, Op: ccl.Sum, Root: random64.IntN(n)}
		length := 1 + random64.IntN(count)>>(4*random64.IntN(3)) // of any order of magnitude
		in := func(int) int { return length }
		now := make([]*ccl.DeviceWork, n)
		for _, err := range enqueue(n, func(i int) (err error) {
			b := buffersOf(call.Coll, call.Type, n, i, call.Root, true, in, in)
			now[i], err = w[i].Enqueue(b.call(call, pointerOf(w[i].device.Ptr()), 4), w[i].stream)
			if err == nil {
				err = now[i].Join(w[i].stream)
			}
			return err
		}) {
			require.NoError(t, err)
		}
		ops = append(ops, now...)
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
	stop()
	end(t, w)
}

// one runs f for one rank after the other.
func one(n int, f func(rank int) error) (errs []error) {
	for i := range n {
		errs = append(errs, f(i))
	}
	return errs
}
