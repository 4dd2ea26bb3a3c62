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

// exchange is an all_reduce of two ranks that send to each other, in the lane that receives or
// beside it.
func exchange(beside bool) plans {
	return plans{dtype.AllReduce: func(spec plan.Spec) *plan.Plan {
		in, out := chunk(plan.In, 0), chunk(plan.Out, 0)
		program := func(rank int) plan.Program {
			send := plan.Step{Kind: plan.Send, Src: []plan.Ref{in}, Peer: 1 - rank}
			recv := plan.Step{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{in}, Peer: 1 - rank, MsgFirst: rank == 1, Final: true}
			if beside {
				return plan.Program{Lanes: [][]plan.Step{{send}, {recv}}}
			}
			return plan.Program{Lanes: [][]plan.Step{{send, recv}}}
		}
		return &plan.Plan{Name: "exchange", Spec: spec, Split: 1, Chans: 1, Needs: plan.Messages, Program: program}
	}}
}

// TestNoCreditToCountOn: what a transport takes before anybody receives is bounded in bytes, and a
// message is not. So a plan that needs the credit of one message, as verify does not let it, works
// with small blocks and hangs with large ones; with a lane for each direction it works.
func TestNoCreditToCountOn(t *testing.T) {
	const small, large = 1 << 10, 16 << 20 // elements
	for _, name := range []string{"inproc", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			for _, test := range []struct {
				beside bool
				n      int
				hangs  bool
			}{{false, small, false}, {false, large, true}, {true, large, false}} {
				all := join(t, name, 2, exchange(test.beside).of)
				if test.hangs {
					for _, c := range all {
						c.SetTimeout(100 * time.Millisecond)
					}
				}
				x := make([]float32, test.n)
				x[test.n-1] = 1
				errs := eachRank(2, func(rank int) error { return all[rank].Run(sumCall(x, make([]float32, test.n))) })
				err := errors.Join(errs...)
				if !test.hangs {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, fault.Timeout) // of the first rank that gives up
				require.NotContains(t, errs, error(nil))
			}
		})
	}
}

// TestOperationsAhead: a rank that waits for nobody is as many operations ahead of its peers as
// package plan says, and verify proves.
func TestOperationsAhead(t *testing.T) {
	window, err := algo.Find(dtype.Broadcast, "window")
	require.NoError(t, err)
	for _, test := range []struct{ n, ahead int }{{1, plan.WindowNotices}, {100, plan.WindowSlots}} {
		root := join(t, "inproc", 2, func(int) exec.Planner { return fixed{window} })[0]
		x := make([]float32, test.n)
		block := []exec.Block{blockOf(x)}
		call := &exec.Call{Coll: dtype.Broadcast, Type: dtype.F32, In: block, Out: block}
		for i := range test.ahead {
			require.NoError(t, root.Run(call), "%d elements, operation %d", test.n, i)
		}
		root.SetTimeout(20 * time.Millisecond)
		require.ErrorIs(t, root.Run(call), fault.Timeout, "%d elements", test.n)
	}
}
