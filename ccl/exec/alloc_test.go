//go:build !race

package exec_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
)

// TestNoAllocations checks that a repeated call does not allocate. It needs a build without the
// race detector, which allocates, and drops pooled objects at random.
func TestNoAllocations(t *testing.T) {
	ring, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	sum := func(x []float32) *exec.Call { return sumCall(x, x) }
	for name, run := range map[string]struct {
		planner exec.Planner
		call    func([]float32) *exec.Call
	}{
		"messages": {fixed{ring}, sum},
		"windows":  {plans{dtype.AllReduce: inPlace(packets)}, sum},
		"counts": {plans{dtype.AllToAll: inPlace(hub), dtype.AllGather: everybody}, func(x []float32) *exec.Call {
			half := []exec.Block{blockOf(x[:len(x)/2]), blockOf(x[len(x)/2:])}
			return &exec.Call{Coll: dtype.AllToAll, Type: dtype.F32, In: half, Out: half}
		}},
	} {
		for _, n := range []int{2, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				all := comms(t, 2, run.planner)
				mine, theirs := run.call(make([]float32, n)), run.call(make([]float32, n))
				const turns = 200
				var group sync.WaitGroup
				defer group.Wait()
				group.Go(func() {
					for range turns + 1 { // AllocsPerRun adds a run
						all[1].Run(theirs)
					}
				})
				allocs := testing.AllocsPerRun(turns, func() { all[0].Run(mine) })
				require.Less(t, allocs, 1.0, "allocations an operation of %d elements", n)
			})
		}
	}
}

func TestPostedDoNotAllocate(t *testing.T) {
	for _, n := range []int{2, 1000} {
		all := join(t, "shm", 2, oneShot.of)
		mine, theirs := sumCall(make([]float32, n), make([]float32, n)), sumCall(make([]float32, n), make([]float32, n))
		burst := func(c *exec.Comm, call *exec.Call) {
			var ops [16]*exec.Op
			for i := range ops {
				ops[i], _ = c.Post(call)
			}
			for _, op := range ops {
				if err := op.Wait(nil); err != nil {
					panic(err)
				}
				op.Free()
			}
		}
		const turns = 200
		var group sync.WaitGroup
		group.Go(func() {
			for range turns + 1 { // AllocsPerRun adds a run
				burst(all[1], theirs)
			}
		})
		allocs := testing.AllocsPerRun(turns, func() { burst(all[0], mine) })
		group.Wait()
		require.Less(t, allocs, 1.0, "allocations a burst of %d elements", n)
	}
}

// TestRootedDoNotAllocate covers what the other tests here do not: windows that only the root reads
// or writes, pieces, and the exchange of lengths before a gather or scatter over windows.
func TestRootedDoNotAllocate(t *testing.T) {
	window := catalogued("window")
	for _, n := range []int{2, 100_000} {
		for _, coll := range []dtype.Collective{dtype.Reduce, dtype.Gather, dtype.Scatter} {
			t.Run(fmt.Sprintf("%v/%d", coll, n), func(t *testing.T) {
				all := join(t, "shm", 2, plans{coll: window, dtype.AllGather: window}.of)
				blocks := func(count int) (list []exec.Block) {
					for range count {
						list = append(list, blockOf(make([]float32, n)))
					}
					return list
				}
				var calls [2]*exec.Call
				for rank := range calls {
					calls[rank] = &exec.Call{Coll: coll, Type: dtype.F32,
						In: blocks(coll.InBlocks(2, rank, 0)), Out: blocks(coll.OutBlocks(2, rank, 0))}
				}
				const turns = 100
				var group sync.WaitGroup
				defer group.Wait()
				group.Go(func() {
					for range turns + 1 { // AllocsPerRun adds a run
						all[1].Run(calls[1])
					}
				})
				allocs := testing.AllocsPerRun(turns, func() { all[0].Run(calls[0]) })
				require.Less(t, allocs, 1.0)
			})
		}
	}
}

// inPlace returns an algorithm with in-place calls permitted. Its results may then be wrong; the
// tests here do not check them.
func inPlace(make func(plan.Spec) *plan.Plan) func(plan.Spec) *plan.Plan {
	return func(spec plan.Spec) *plan.Plan {
		p := make(spec)
		p.Alias = plan.InPlace
		return p
	}
}

func TestMessagesDoNotAllocate(t *testing.T) {
	for _, n := range []int{8, 2000, 64 << 10, 256 << 10, 700_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			all := comms(t, 2, plans{})
			var calls [2][2]*exec.Call
			for rank := range 2 {
				calls[rank] = [2]*exec.Call{
					messageCall(dtype.Send, make([]byte, n), 1-rank, 1),
					messageCall(dtype.Recv, make([]byte, n), 1-rank, 1),
				}
			}
			const warm, runs = 50, 50
			errs := make(chan error, 1)
			go func() {
				for range warm + runs + 1 {
					for _, call := range [2]*exec.Call{calls[1][1], calls[1][0]} {
						if err := all[1].Run(call); err != nil {
							errs <- err
							return
						}
					}
				}
				errs <- nil
			}()
			turn := func() {
				for _, call := range calls[0] {
					if err := all[0].Run(call); err != nil {
						panic(err)
					}
				}
			}
			for range warm {
				turn()
			}
			require.Zero(t, testing.AllocsPerRun(runs, turn))
			require.NoError(t, <-errs)
		})
	}
}

// TestCallsStayOnTheStack checks that a call does not escape: who makes one for each operation, as
// package exports does, would allocate it each time.
func TestCallsStayOnTheStack(t *testing.T) {
	c := comms(t, 1, plans{dtype.Barrier: catalogued("dissemination")})[0]
	require.Zero(t, testing.AllocsPerRun(100, func() {
		call := exec.Call{Coll: dtype.Barrier}
		c.Run(&call)
	}))
}

// always tries two algorithms in turns, and has the ranks agree before every fifth call.
type always struct {
	turns int
	times [2]uint64
}

func (a *always) Turn(dtype.Collective, int64, uint64) exec.Turn {
	a.turns++
	if a.turns%5 == 0 {
		return exec.Turn{Agree: true}
	}
	return exec.Turn{Algorithm: a.turns % 2, Trial: true}
}

func (a *always) Took(nanoseconds uint64) { a.times[0] = nanoseconds }
func (a *always) Drop() bool              { return false }
func (a *always) Times() []uint64         { return a.times[:] }
func (a *always) Agree([]uint64, uint64)  {}

// Trials, and the exchanges of times, do not allocate either.
func TestTrialsDoNotAllocate(t *testing.T) {
	names := algorithmsFor(t, dtype.AllReduce, "ring", "direct")
	all := make([]*exec.Comm, 2)
	for rank, m := range members(t, "inproc", 2) {
		m.trials = new(always)
		all[rank] = m.comm(t, rank, names)
	}
	const warm, turns = 50, 200 // the first calls make the programs
	call := func() *exec.Call { return sumCall(make([]float32, 1000), make([]float32, 1000)) }
	mine, theirs := call(), call()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for range warm + turns + 1 { // AllocsPerRun adds a run
			all[1].Run(theirs)
		}
	})
	for range warm {
		all[0].Run(mine)
	}
	require.Zero(t, testing.AllocsPerRun(turns, func() { all[0].Run(mine) }))
	require.Nil(t, all[0].Failure())
}
