package exec_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// TestLateToACall has rank 0 give up its second or third collective, while rank 1 computes and has
// all that it needs for it. Rank 1 still ends the calls before, and is refused that one and later
// ones, also the second time.
func TestLateToACall(t *testing.T) {
	made := func(coll dtype.Collective, name string) func(plan.Spec) *plan.Plan {
		a, err := algo.Find(coll, name)
		require.NoError(t, err)
		return func(spec plan.Spec) *plan.Plan {
			p, err := a.Make(spec)
			require.NoError(t, err)
			return p
		}
	}
	planner := plans{dtype.Broadcast: made(dtype.Broadcast, "binomial"),
		dtype.AllReduce: made(dtype.AllReduce, "direct")}.of
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, warm := range []bool{false, true} {
			for before := range 3 {
				t.Run("", func(t *testing.T) {
					comms := join(t, transport, 2, planner)
					x, y := make([]float64, 8), make([]float64, 8)
					add := func(x []float64) *exec.Call {
						return &exec.Call{Coll: dtype.AllReduce, Type: dtype.F64, Op: dtype.Sum,
							In: []exec.Block{block(x)}, Out: []exec.Block{block(x)}}
					}
					begin := uint64(0)
					if warm {
						for range 3 {
							begin++
							for _, err := range eachRank(2, func(rank int) error {
								return comms[rank].Run(add([][]float64{x, y}[rank]))
							}) {
								require.NoError(t, err)
							}
						}
					}
					for range before { // rank 0 has done these when it gives up; rank 1 has not called them
						require.NoError(t, comms[0].Run(&exec.Call{Coll: dtype.Broadcast, Type: dtype.F64, Root: 0,
							In: []exec.Block{block(x)}, Out: []exec.Block{block(x)}}))
					}
					late := add(x)
					late.Timeout = 50 * time.Millisecond
					require.ErrorIs(t, comms[0].Run(late), fault.Timeout)
					require.Eventually(t, func() bool { return exec.Barred(comms[1]) }, hang, time.Millisecond)
					require.Eventually(t, func() bool { return comms[1].Gone(0) != nil }, hang, time.Millisecond)
					for range before {
						exec.LookBeforePost(comms[1])
						require.NoError(t, comms[1].Run(&exec.Call{Coll: dtype.Broadcast, Type: dtype.F64, Root: 0,
							Out: []exec.Block{block(y)}}))
					}
					for range 2 {
						begun := time.Now()
						err := comms[1].Run(add(y))
						require.Less(t, time.Since(begun), time.Second)
						var f *fault.Error
						require.True(t, errors.As(err, &f), "%v", err)
						require.Equal(t, fault.Timeout, f.Code)
						require.Equal(t, []int{1}, f.Culprits())
						require.ErrorContains(t, err, "rank 0 reports, in all_reduce of 8 x f64 (sum), seq ")
						require.ErrorContains(t, err, "not begun, after seq ")
						require.Equal(t, begin+uint64(before), comms[1].Seq())
					}
				})
			}
		}
	}
}

// TestSumAgainstReceive has two ranks wait in different calls: neither is to blame more than the
// other, and both are told of both calls, whichever gives up first.
func TestSumAgainstReceive(t *testing.T) {
	a, err := algo.Find(dtype.AllReduce, "direct")
	require.NoError(t, err)
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, first := range []int{0, 1} {
			t.Run(transport, func(t *testing.T) {
				comms := join(t, transport, 2, func(int) exec.Planner { return fixed{a} })
				errs := eachRank(2, func(rank int) error {
					defer comms[rank].Close()
					x := make([]float64, 4)
					c := &exec.Call{Coll: dtype.AllReduce, Type: dtype.F64, Op: dtype.Sum,
						Timeout: 200 * time.Millisecond, In: []exec.Block{block(x)}, Out: []exec.Block{block(x)}}
					if rank == 1 {
						c.Coll, c.In, c.Root = dtype.Recv, nil, 0
					}
					if rank != first {
						c.Timeout = hang
					}
					return comms[rank].Run(c)
				})
				for rank, err := range errs {
					require.ErrorContains(t, err, "all_reduce of 4 x f64 (sum), seq 1", "rank %d", rank)
					require.ErrorContains(t, err, "recv of 4 x f64 from rank 0, tag 0, seq 1", "rank %d", rank)
				}
				var f *fault.Error
				require.True(t, errors.As(errs[first], &f))
				require.Equal(t, []int{0, 1}, f.Culprits(), "%v", f)
				require.ErrorContains(t, f, "waits in")
			})
		}
	}
}
