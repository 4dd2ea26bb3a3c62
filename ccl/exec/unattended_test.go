package exec_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
)

// allReduce posts an all_reduce of count elements on every rank, all 1.
func allReduce(t *testing.T, all []*exec.Comm, count int) (ops []*exec.Op, values [][]float64) {
	t.Helper()
	for _, c := range all {
		x := make([]float64, count)
		for i := range x {
			x[i] = 1
		}
		op, err := c.Post(&exec.Call{
			Coll: dtype.AllReduce, Type: dtype.F64, Op: dtype.Sum,
			In: []exec.Block{block(x)}, Out: []exec.Block{block(x)},
		})
		require.NoError(t, err)
		ops, values = append(ops, op), append(values, x)
	}
	return ops, values
}

func sums(t *testing.T, values [][]float64) {
	t.Helper()
	for rank, x := range values {
		for i := range x {
			if x[i] != float64(len(values)) {
				t.Fatalf("rank %d, element %d: %v", rank, i, x[i])
			}
		}
	}
}

// ended waits until the operations have ended: it polls them from time to time, without driving
// them.
func ended(t *testing.T, ops []*exec.Op) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, op := range ops {
			if done, err := op.Done(); !done || err != nil {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond, "operations that nobody waits for do not end")
}

func free(ops []*exec.Op) {
	for _, op := range ops {
		op.Free()
	}
}

var attention = []struct {
	name string
	pay  func(t *testing.T, ops []*exec.Op)
}{
	{"nobody", ended},
	{"expedited", func(t *testing.T, ops []*exec.Op) {
		for _, op := range ops {
			op.Expedite()
			op.Expedite() // a second time changes nothing
		}
		ended(t, ops)
	}},
	{"one is expedited", func(t *testing.T, ops []*exec.Op) {
		ops[0].Expedite()
		ended(t, ops)
	}},
	{"expedited after the end", func(t *testing.T, ops []*exec.Op) {
		ended(t, ops)
		for _, op := range ops {
			op.Expedite()
		}
	}},
	{"polled", func(t *testing.T, ops []*exec.Op) {
		end := time.Now().Add(20 * time.Second)
		for _, op := range ops {
			for done := false; !done; {
				var err error
				done, err = op.Poll()
				require.NoError(t, err)
				require.True(t, time.Now().Before(end), "a polled operation does not end")
			}
		}
	}},
	{"waited for in reverse order", func(t *testing.T, ops []*exec.Op) {
		for i := range ops {
			require.NoError(t, ops[len(ops)-1-i].Wait(nil))
		}
	}},
}

func TestUnattended(t *testing.T) {
	ring, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	for _, name := range []string{"inproc", "shm", "tcp"} {
		all := join(t, name, 3, func(int) exec.Planner { return fixed{ring} })
		for _, a := range attention {
			t.Run(name+", "+a.name, func(t *testing.T) {
				for _, count := range []int{1, 50_000} {
					ops, values := allReduce(t, all, count)
					more, others := allReduce(t, all, count) // behind them
					a.pay(t, ops)
					a.pay(t, more)
					sums(t, values)
					sums(t, others)
					free(ops)
					free(more)
				}
			})
		}
	}
}

// TestPollNeedsNobody checks that polling alone drives operations: there is no progress thread.
func TestPollNeedsNobody(t *testing.T) {
	all := members(t, "inproc", 2)
	ring, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	var group []*exec.Comm
	for rank, m := range all {
		m.progress.Close() // a closed progress thread never starts
		group = append(group, m.comm(t, rank, fixed{ring}))
	}
	ops, values := allReduce(t, group, 50_000)
	end := time.Now().Add(20 * time.Second)
	for left := len(ops); left > 0; {
		left = len(ops)
		for _, op := range ops {
			done, err := op.Poll()
			require.NoError(t, err)
			if done {
				left--
			}
		}
		require.True(t, time.Now().Before(end), "polled operations do not end")
	}
	sums(t, values)
	free(ops)
}
