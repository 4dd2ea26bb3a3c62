package exec_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

// flight is how many operations are in flight together in these tests.
var flight = map[bool]int{false: 100_000, true: 10_000}[underRace]

// postMany posts operations and counts their ends.
func postMany(t *testing.T, c *exec.Comm, n int, ends *atomic.Int32, call func(i int) *exec.Call) []*exec.Op {
	t.Helper()
	ops := make([]*exec.Op, n)
	for i := range ops {
		var err error
		ops[i], err = c.Post(call(i))
		require.NoError(t, err)
		if !ops[i].OnEnd(func() { ends.Add(1) }) {
			ends.Add(1)
		}
	}
	return ops
}

// elementSums are calls that add one element each.
func elementSums(in, out []float32) func(i int) *exec.Call {
	return func(i int) *exec.Call { return sumCall(in[i:i+1], out[i:i+1]) }
}

// posting is how the groups of these tests are made.
var posting = map[string]func(rank int) exec.Planner{
	"shm": oneShot.of,
	"tcp": plans{dtype.AllReduce: catalogued("ring")}.of,
}

// TestManyInFlight has one rank post all of its operations before the other one begins. All end
// well, and each is told once.
func TestManyInFlight(t *testing.T) {
	for name, planner := range posting {
		t.Run(name, func(t *testing.T) {
			comms := join(t, name, 2, planner)
			var ends [2]atomic.Int32
			var ops [2][]*exec.Op
			in, out := [2][]float32{}, [2][]float32{}
			for rank, c := range comms {
				in[rank], out[rank] = vector(rank, flight, 1), make([]float32, flight)
				ops[rank] = postMany(t, c, flight, &ends[rank], elementSums(in[rank], out[rank]))
			}
			each(t, 2, func(rank int) error { return ops[rank][flight-1].Wait(nil) })
			for rank := range comms {
				for i, op := range ops[rank] {
					done, err := op.Done()
					require.True(t, done)
					require.NoError(t, err)
					if out[rank][i] != in[0][i]+in[1][i] {
						require.Equal(t, in[0][i]+in[1][i], out[rank][i], "operation %d of rank %d", i, rank)
					}
				}
				require.EqualValues(t, flight, ends[rank].Load())
				free(ops[rank])
			}
		})
	}
}

// TestManyMessages does the same with messages, of different tags, of which one rank posts the
// receives in another order than the other one its sends.
func TestManyMessages(t *testing.T) {
	for name, planner := range posting {
		t.Run(name, func(t *testing.T) {
			comms := join(t, name, 2, planner)
			data, got := make([]byte, flight), make([]byte, flight)
			for i := range data {
				data[i] = byte(i % 251)
			}
			var ends [2]atomic.Int32
			receives := postMany(t, comms[0], flight, &ends[0], func(i int) *exec.Call {
				i = flight - 1 - i
				return messageCall(dtype.Recv, got[i:i+1], 1, uint32(i))
			})
			sends := postMany(t, comms[1], flight, &ends[1], func(i int) *exec.Call {
				return messageCall(dtype.Send, data[i:i+1], 0, uint32(i))
			})
			each(t, 2, func(rank int) error {
				for _, op := range [][]*exec.Op{receives, sends}[rank] {
					if err := op.Wait(nil); err != nil {
						return err
					}
				}
				return nil
			})
			require.Equal(t, data, got)
			require.EqualValues(t, flight, ends[0].Load())
			require.EqualValues(t, flight, ends[1].Load())
			free(receives)
			free(sends)
		})
	}
}

// TestManyAtTheEnd: a peer leaves while very many operations wait for it. Each ends once, with the
// reason and its own name, and Close has nothing left to wait for.
func TestManyAtTheEnd(t *testing.T) {
	for name, planner := range posting {
		t.Run(name, func(t *testing.T) {
			comms := join(t, name, 2, planner)
			var ends atomic.Int32
			x, m := make([]float32, flight), make([]byte, flight)
			ops := postMany(t, comms[0], flight, &ends, elementSums(x, x))
			ops = append(ops, postMany(t, comms[0], flight, &ends, func(i int) *exec.Call {
				return messageCall(dtype.Recv, m[i:i+1], 1, uint32(i))
			})...)
			comms[1].Abort(fault.New(fault.Aborted, "because"))
			require.ErrorIs(t, ops[flight-1].Wait(nil), fault.Aborted)
			require.NoError(t, comms[0].Close())
			require.EqualValues(t, 2*flight, ends.Load())
			for i, op := range ops {
				done, err := op.Done()
				require.True(t, done)
				if i%1000 == 0 {
					require.ErrorIs(t, err, fault.Aborted)
					require.ErrorContains(t, err, fmt.Sprintf("seq %d", i%flight+1))
				}
			}
			free(ops)
		})
	}
}

// TestQueueThatMoves: operations that are posted together take longer than their timeout, all in
// all, but each of them ends soon after the one before it. None times out.
func TestQueueThatMoves(t *testing.T) {
	const timeout, step, steps = 1500 * time.Millisecond, 250 * time.Millisecond, 8
	for name, planner := range posting {
		for kind, calls := range map[string]func(rank int, x []float32) func(i int) *exec.Call{
			"collectives": func(rank int, x []float32) func(i int) *exec.Call { return elementSums(x, x) },
			"messages, one tag": func(rank int, x []float32) func(i int) *exec.Call {
				return func(i int) *exec.Call { return elementMessage(rank, x, i, 0) }
			},
			"messages, different tags": func(rank int, x []float32) func(i int) *exec.Call {
				return func(i int) *exec.Call { return elementMessage(rank, x, i, uint32(i)) }
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				comms := join(t, name, 2, planner)
				var x [2][]float32
				for rank, c := range comms {
					c.SetTimeout(timeout)
					x[rank] = vector(rank, steps, 1)
				}
				var ends atomic.Int32
				ops := postMany(t, comms[0], steps, &ends, calls(0, x[0]))
				call := calls(1, x[1])
				for i := range steps {
					time.Sleep(step)
					require.NoError(t, comms[1].Run(call(i)))
				}
				for _, op := range ops {
					require.NoError(t, op.Wait(nil))
				}
				free(ops)
			})
		}
	}
}

// elementMessage is the message that moves element i from rank 1 to rank 0.
func elementMessage(rank int, x []float32, i int, tag uint32) *exec.Call {
	b := []exec.Block{blockOf(x[i : i+1])}
	if rank == 0 {
		return &exec.Call{Coll: dtype.Recv, Type: dtype.F32, Root: 1, Tag: tag, Out: b}
	}
	return &exec.Call{Coll: dtype.Send, Type: dtype.F32, Root: 0, Tag: tag, In: b}
}

// TestStalledTogether: messages that never come time out together, not one after another; also one
// that has a shorter timeout than those before it.
func TestStalledTogether(t *testing.T) {
	const many, timeout = 1000, 300 * time.Millisecond
	comms := join(t, "shm", 2, oneShot.of)
	comms[0].SetTimeout(time.Hour)
	patient, err := comms[0].Post(messageCall(dtype.Recv, make([]byte, 1), 1, 9))
	require.NoError(t, err)
	begin := time.Now()
	var ends atomic.Int32
	ops := postMany(t, comms[0], many, &ends, func(i int) *exec.Call {
		call := messageCall(dtype.Recv, make([]byte, 1), 1, uint32(i%3))
		call.Timeout = timeout
		return call
	})
	for i := len(ops) - 1; i >= 0; i-- {
		require.ErrorIs(t, ops[i].Wait(nil), fault.Timeout)
	}
	require.GreaterOrEqual(t, time.Since(begin), timeout)
	require.Less(t, time.Since(begin), hang)
	free(ops)
	done, err := patient.Done()
	require.False(t, done, err)
	require.Nil(t, comms[0].Failure())
	patient.Free()
}
