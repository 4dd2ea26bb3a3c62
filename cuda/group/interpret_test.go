package group_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/cuda/cudatest"
)

// interpreted are options of groups whose short calls are kernels that interpret their program.
var interpreted = ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: "windows", CudaInterpret: "1"}

// counted returns options of a machine that counts the kernels that interpret, and the counter.
func counted(device cudatest.Options) (cudatest.Options, *atomic.Int32) {
	n := new(atomic.Int32)
	device.Trace = func(line string) {
		if strings.Contains(line, "goccl_run_") {
			n.Add(1)
		}
	}
	return device, n
}

// Every collective has the bits that it has on the processor, also if calls are one kernel.
func TestInterpretedMatrix(t *testing.T) {
	for ranks := 2; ranks <= 8; ranks++ {
		if skipped(ranks) {
			continue
		}
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			device, kernels := counted(quick)
			w := machine(t, ranks, device, interpreted, memory)
			require.EqualValues(t, tune.MostInterpreted, w[0].Route().Interpreted)
			if calls := shortCalls(t, w); !*gpu {
				require.EqualValues(t, ranks*calls, kernels.Load())
			}
			end(t, w)
		})
	}
}

// shortCalls makes calls of all kinds that can be interpreted, or one in six, of many ranks one in
// twelve, and returns how many.
func shortCalls(t *testing.T, w []*rank) (calls int) {
	every := 6
	if len(w) > 4 {
		every = 12
	}
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter, dtype.Broadcast,
		dtype.Reduce} {
		for _, typ := range dtype.Types() {
			for _, op := range dtype.Ops() {
				if coll.Reduces() && dtype.Reducible(typ, op) != nil || !coll.Reduces() && op != ccl.Sum ||
					!*full && (int(typ)+int(op)+len(w))%every != 0 {
					continue
				}
				calls++
				seed := uint64(calls)
				count := []int{1, 5, 333, 2000, tune.MostInterpreted / typ.Size()}[calls%5]
				if coll == dtype.AllGather || coll == dtype.ReduceScatter {
					count = max(1, count/len(w)&^63)
				}
				call := ccl.Call{Coll: coll, Type: typ, Op: op, Root: calls % len(w), Factor: 1.5}
				length := func(_, _ int) int { return count }
				same(t, w, call, calls%2 == 0, seed, length, length)
			}
		}
	}
	return calls
}

func TestInterpretedUnequalBlocks(t *testing.T) {
	unequalBlocks(t, machine(t, 3, quick, interpreted, memory))
}

func TestInterpretedLengths(t *testing.T) { lengths(t, machine(t, 3, quick, interpreted, memory)) }

func TestInterpretedOrder(t *testing.T) {
	inOrder(t, func(t *testing.T, n int, seed uint64) []*rank {
		device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond, Devices: 1 + int(seed%2)*(n-1)}
		return machine(t, n, device, interpreted, 256<<10)
	})
}

// Calls that are interpreted and calls that are not follow each other in any order, of any size.
func TestInterpretedBesideOthers(t *testing.T) {
	device, kernels := counted(quick)
	w := machine(t, 3, device, interpreted, memory)
	before := int32(0)
	for round, count := range []int{1, 40_000, 16_384, 16_385, 3, 5000, 100_000, 0, 7, 4096} {
		length := func(_, _ int) int { return count }
		for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.Broadcast, dtype.Reduce} {
			same(t, w, ccl.Call{Coll: coll, Type: dtype.F32, Op: ccl.Avg, Root: round % 3}, round%2 == 0, uint64(round),
				length, length)
			now := kernels.Load()
			require.Equal(t, 4*count <= tune.MostInterpreted, now-before == 3, "%d elements", count)
			before = now
		}
	}
	end(t, w)
}
