package exec_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/record"
)

const slice = time.Millisecond

// recorded returns a group whose operations are recorded, by rank.
func recorded(t *testing.T, name string, ranks int) (comms []*exec.Comm, rings []*record.Ring) {
	t.Helper()
	algorithm := catalogued("one_shot_window")
	if name == "tcp" {
		algorithm = catalogued("ring")
	}
	for rank, m := range members(t, name, ranks) {
		ring := record.New(64)
		c, err := exec.New(exec.Options{
			Name: "test", Rank: rank, Links: m.links, Pollers: m.pollers, Doorbell: m.doorbell,
			Planner: plans{dtype.AllReduce: algorithm}, Window: m.window, Progress: m.progress,
			Timeout: time.Minute, Record: ring,
		})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		comms, rings = append(comms, c), append(rings, ring)
	}
	return comms, rings
}

// inSlices runs a call that no peer answers yet, and returns its Op.
func inSlices(t *testing.T, c *exec.Comm, call *exec.Call) *exec.Op {
	t.Helper()
	op, err := c.RunSlice(call, slice)
	require.NoError(t, err)
	require.NotNil(t, op)
	ended, err := op.WaitSlice(slice)
	require.NoError(t, err)
	require.False(t, ended)
	return op
}

// TestSlices checks that an operation that has left Run goes on like a posted one: whoever drives
// it, its result is right, its end is recorded once, and later operations are not disturbed.
func TestSlices(t *testing.T) {
	unattended := func(op *exec.Op) error {
		for {
			seen := exec.Completions.Count()
			if ended, err := op.Done(); ended {
				return err
			}
			exec.Completions.Wait(seen, time.Minute)
		}
	}
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for way, finish := range map[string]func(*exec.Op) error{
			"Wait": func(op *exec.Op) error { return op.Wait(nil) },
			"WaitSlice": func(op *exec.Op) error {
				for {
					if ended, err := op.WaitSlice(slice); ended {
						return err
					}
				}
			},
			"Poll": func(op *exec.Op) error {
				for {
					if ended, err := op.Poll(); ended {
						return err
					}
				}
			},
			"the progress thread": unattended,
			"the progress thread, at once": func(op *exec.Op) error {
				op.Expedite()
				return unattended(op)
			},
		} {
			t.Run(fmt.Sprintf("%s/%s", name, way), func(t *testing.T) {
				comms, rings := recorded(t, name, 2)
				for round := range 4 { // from the third on, the program is kept
					for _, n := range []int{3, 5000} {
						x, y := vector(0, n, round), vector(1, n, round)
						want := make([]float32, n)
						for i := range want {
							want[i] = x[i] + y[i]
						}
						op := inSlices(t, comms[0], sumCall(x, x))
						total := rings[0].Total()
						records := rings[0].Records()
						require.False(t, records[len(records)-1].Done, "it has not ended")
						ended := make(chan error, 1)
						go func() { ended <- comms[1].Run(sumCall(y, y)) }()
						require.NoError(t, finish(op))
						require.NoError(t, <-ended)
						op.Free()
						require.Equal(t, want, x)
						require.Equal(t, want, y)
						records = rings[0].Records()
						require.Equal(t, total, rings[0].Total())
						last := records[len(records)-1]
						require.True(t, last.Done && last.Code == fault.OK && !last.Ended.IsZero(), "%+v", last)
						each(t, 2, func(rank int) error {
							return comms[rank].Run(sumCall(make([]float32, 1), make([]float32, 1)))
						})
					}
				}
			})
		}
	}
}

// TestSlicesBehindOthers checks operations of RunSlice that are queued behind posted ones, and
// others that are queued behind them.
func TestSlicesBehindOthers(t *testing.T) {
	comms := join(t, "shm", 2, oneShot.of)
	x, y, z := vector(0, 6, 1), vector(0, 6, 2), vector(0, 6, 3)
	first, err := comms[0].Post(sumCall(x, x))
	require.NoError(t, err)
	second := inSlices(t, comms[0], sumCall(y, y))
	third := inSlices(t, comms[0], sumCall(z, z))
	for i, mine := range [][]float32{x, y, z} {
		theirs := vector(1, 6, i+1)
		require.NoError(t, comms[1].Run(sumCall(theirs, theirs)))
		require.NoError(t, []*exec.Op{first, second, third}[i].Wait(nil))
		require.Equal(t, theirs, mine)
	}
	free([]*exec.Op{first, second, third})
}

// TestSlicesOfMessages checks receives, of all protocols, and a send that waits for its receiver.
func TestSlicesOfMessages(t *testing.T) {
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for _, n := range []int{8, 2000, 700_000} {
			for _, sends := range []bool{false, true} {
				if sends && n < 700_000 {
					continue // it does not wait for the receiver
				}
				t.Run(fmt.Sprintf("%s/%d bytes/send %t", name, n, sends), func(t *testing.T) {
					comms := join(t, name, 2, oneShot.of)
					for range 3 {
						data := [2][]byte{make([]byte, n), make([]byte, n)}
						from, to := 1, 0
						if sends {
							from, to = 0, 1
						}
						for i := range n {
							data[from][i] = byte(i + n)
						}
						calls := [2]*exec.Call{}
						calls[from] = messageCall(dtype.Send, data[from], to, 1)
						calls[to] = messageCall(dtype.Recv, data[to], from, 1)
						op := inSlices(t, comms[0], calls[0])
						again := inSlices(t, comms[0], messageCall(dtype.Recv, make([]byte, 1), 1, 2))
						require.NoError(t, comms[1].Run(calls[1]))
						require.NoError(t, op.Wait(nil))
						require.Equal(t, data[from], data[to])
						require.NoError(t, comms[1].Run(messageCall(dtype.Send, make([]byte, 1), 0, 2)))
						require.NoError(t, again.Wait(nil))
						free([]*exec.Op{op, again})
					}
				})
			}
		}
	}
}

// TestSlicesEnd checks that the timeout of the call counts, and that Abort and Close end the
// operation.
func TestSlicesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		end     func(*exec.Comm)
		code    fault.Code
	}{
		"timeout": {50 * time.Millisecond, func(*exec.Comm) {}, fault.Timeout},
		"abort":   {0, func(c *exec.Comm) { c.Abort(fault.New(fault.Aborted, "interrupted")) }, fault.Aborted},
		"close":   {0, func(c *exec.Comm) { c.Close() }, fault.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			comms, rings := recorded(t, "shm", 2)
			call := sumCall(make([]float32, 4), make([]float32, 4))
			call.Timeout = c.timeout
			op := inSlices(t, comms[0], call)
			c.end(comms[0])
			for {
				ended, err := op.WaitSlice(slice)
				if ended {
					require.ErrorIs(t, err, c.code)
					break
				}
			}
			op.Free()
			records := rings[0].Records()
			require.Len(t, records, 1)
			require.True(t, records[0].Done)
			require.Equal(t, c.code, records[0].Code)
			left, err := comms[0].RunSlice(call, slice)
			require.Nil(t, left)
			require.ErrorIs(t, err, c.code)
		})
	}
}

// TestWhatAPeerSaidEndsMessages checks that a message fails for the reason that its peer gave when
// it left, and not because it left.
func TestWhatAPeerSaidEndsMessages(t *testing.T) {
	for _, name := range []string{"inproc", "shm", "tcp"} {
		comms := join(t, name, 2, oneShot.of)
		op := inSlices(t, comms[0], messageCall(dtype.Recv, make([]byte, 1), 1, 1))
		comms[1].Abort(fault.New(fault.Aborted, "interrupted"))
		err := op.Wait(nil)
		require.ErrorIs(t, err, fault.Aborted)
		require.ErrorContains(t, err, "(rank 1): rank 1 reports: interrupted")
		op.Free()
	}
}
