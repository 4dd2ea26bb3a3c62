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

// exchange is an all_reduce of two ranks in which each sends to the other: in the lane that
// receives or, if beside is set, in a second lane.
func exchange(beside bool) plans {
	return plans{dtype.AllReduce: func(spec plan.Spec) *plan.Plan {
		in, out := chunk(plan.In, 0), chunk(plan.Out, 0)
		program := func(rank int) plan.Program {
			send := plan.Step{Kind: plan.Send, Src: []plan.Ref{in}, Peer: 1 - rank}
			recv := plan.Step{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{in}, Peer: 1 - rank,
				MsgFirst: rank == 1, Final: true}
			if beside {
				return plan.Program{Lanes: [][]plan.Step{{send}, {recv}}}
			}
			return plan.Program{Lanes: [][]plan.Step{{send, recv}}}
		}
		return &plan.Plan{Name: "exchange", Spec: spec, Split: 1, Chans: 1, Needs: plan.Messages, Program: program}
	}}
}

// TestNoCreditToCountOn shows why plans must not count on credit. The number of bytes that a
// transport accepts before the peer receives is bounded; the length of a message is not. A plan
// that needs the credit of one message, which verify does not allow, therefore works with small
// blocks and hangs with large ones. With one lane for each direction it works.
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
				require.ErrorIs(t, err, fault.Timeout) // from the first rank that gives up
				require.NotContains(t, errs, error(nil))
			}
		})
	}
}

// TestOperationsAhead checks that a rank which waits for no peer can be ahead of its peers by
// exactly the number of operations that package plan defines and verify proves.
func TestOperationsAhead(t *testing.T) {
	window, err := algo.Find(dtype.Broadcast, "window")
	require.NoError(t, err)
	for _, test := range []struct{ n, ahead int }{{1, plan.WindowRecords}, {100, plan.WindowSlots}} {
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
