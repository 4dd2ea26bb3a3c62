package exec_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

var oneShot = plans{dtype.AllReduce: catalogued("one_shot_window")}

// warmed returns a group that has kept the programs of all_reduces of the given counts.
func warmed(t *testing.T, name string, ranks int, counts ...int) []*exec.Comm {
	t.Helper()
	comms := join(t, name, ranks, oneShot.of)
	for range 3 {
		for _, n := range counts {
			each(t, ranks, func(rank int) error {
				x := make([]float32, n)
				return comms[rank].Run(sumCall(x, x))
			})
		}
	}
	for _, c := range comms {
		require.Equal(t, len(counts), exec.Programs(c))
	}
	return comms
}

// TestPostedKnown checks that small operations in flight together, on the same memory and on other
// memory, are done in their order, in whatever way the ranks wait for them.
func TestPostedKnown(t *testing.T) {
	const ranks, burst, rounds = 3, 20, 6 // a burst is more than the records of a window
	for _, name := range []string{"inproc", "shm"} {
		t.Run(name, func(t *testing.T) {
			comms := warmed(t, name, ranks, 1, 6)
			for round := range rounds {
				var group sync.WaitGroup
				for rank, c := range comms {
					group.Go(func() {
						one, six := []float32{1}, make([][]float32, burst)
						var ops []*exec.Op
						for i := range burst {
							six[i] = vector(rank, 6, i)
							for _, x := range [][]float32{one, six[i]} {
								if len(x) == 1 && i >= 10 {
									continue // 3¹⁰ is exact
								}
								op, err := c.Post(sumCall(x, x))
								if err != nil {
									t.Error(err)
									return
								}
								ops = append(ops, op)
							}
						}
						switch (rank + round) % ranks {
						case 1:
							slices.Reverse(ops)
						case 2:
							for _, op := range ops {
								for done := false; !done; {
									done, _ = op.Poll()
								}
							}
						}
						for _, op := range ops {
							if err := op.Wait(nil); err != nil {
								t.Error(err)
							}
							op.Free()
						}
						if one[0] != 59049 {
							t.Errorf("rank %d: %v", rank, one)
						}
						for i, x := range six {
							for k := range x {
								want := float32(0)
								for r := range ranks {
									want += vector(r, 6, i)[k]
								}
								if x[k] != want {
									t.Errorf("rank %d, operation %d, element %d: %v, want %v", rank, i, k, x[k], want)
								}
							}
						}
					})
				}
				group.Wait()
			}
		})
	}
}

// TestPostedKnownUnattended checks that operations for which no thread waits end soon after all
// ranks have posted them.
func TestPostedKnownUnattended(t *testing.T) {
	for _, name := range []string{"inproc", "shm"} {
		comms := warmed(t, name, 2, 6)
		for range 20 {
			var ops []*exec.Op
			var x [2][]float32
			for rank, c := range comms {
				x[rank] = vector(rank, 6, 1)
				for range 2 {
					op, err := c.Post(sumCall(x[rank], x[rank]))
					require.NoError(t, err)
					ops = append(ops, op)
				}
			}
			ended(t, ops)
			free(ops)
			require.Equal(t, x[0], x[1])
		}
	}
}

// TestPostedKnownOfTwoThreads has one thread of each rank post and run operations, and another wait
// for them.
func TestPostedKnownOfTwoThreads(t *testing.T) {
	comms := warmed(t, "inproc", 2, 6)
	var group sync.WaitGroup
	for _, c := range comms {
		handed := make(chan *exec.Op, 4)
		group.Go(func() {
			for op := range handed {
				if err := op.Wait(nil); err != nil {
					t.Error(err)
				}
				op.Free()
			}
		})
		group.Go(func() {
			defer close(handed)
			x, y := make([]float32, 6), make([]float32, 6)
			for i := range 300 {
				op, err := c.Post(sumCall(x, x))
				if err == nil {
					handed <- op
					if i%3 == 0 {
						err = c.Run(sumCall(y, y))
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestPostedKnownFaults checks that an error of a posted call is reported as that of any other
// call, whether the call is invalid or fails later, and to the operations behind it.
func TestPostedKnownFaults(t *testing.T) {
	post := func(t *testing.T, c *exec.Comm, n int, d time.Duration) *exec.Op {
		t.Helper()
		x := make([]float32, n)
		call := sumCall(x, x)
		call.Timeout = d
		op, err := c.Post(call)
		require.NoError(t, err)
		return op
	}
	t.Run("refused", func(t *testing.T) {
		comms := warmed(t, "inproc", 2, 6)
		x := make([]float32, 8)
		op, err := comms[0].Post(sumCall(x[:6], x[2:]))
		require.NoError(t, err)
		require.ErrorContains(t, op.Wait(nil), "share memory")
		op.Free()
		nowhere := sumCall(x[:6], x[:6])
		nowhere.Out[0].Ptr = nil
		_, err = comms[0].Post(nowhere)
		require.ErrorContains(t, err, "no memory")
	})
	t.Run("mismatch", func(t *testing.T) {
		comms := warmed(t, "inproc", 2, 6, 7)
		ops := []*exec.Op{post(t, comms[0], 6, 0), post(t, comms[0], 6, 0), post(t, comms[1], 7, 0)}
		for i, op := range ops {
			require.ErrorIs(t, op.Wait(nil), fault.Mismatch, "operation %d", i)
			require.ErrorContains(t, op.Wait(nil), "all ranks of a group must make the same calls")
		}
		free(ops)
	})
	t.Run("timeout", func(t *testing.T) {
		comms := warmed(t, "shm", 2, 6)
		ops := []*exec.Op{post(t, comms[0], 6, 20*time.Millisecond), post(t, comms[0], 6, time.Minute)}
		for _, op := range ops {
			require.ErrorIs(t, op.Wait(nil), fault.Timeout)
			require.ErrorContains(t, op.Wait(nil), "rank 1 is in no call since seq 3")
		}
		free(ops)
		_, err := comms[0].Post(sumCall(make([]float32, 6), make([]float32, 6)))
		require.ErrorIs(t, err, fault.Timeout)
	})
	t.Run("timeout of what nobody waits for", func(t *testing.T) {
		comms := warmed(t, "shm", 2, 6)
		op := post(t, comms[0], 6, 20*time.Millisecond)
		require.Eventually(t, func() bool { done, _ := op.Done(); return done }, 20*time.Second, time.Millisecond)
		require.ErrorIs(t, op.Wait(nil), fault.Timeout)
		op.Free()
	})
	t.Run("the peer leaves", func(t *testing.T) {
		comms := warmed(t, "shm", 2, 6)
		op := post(t, comms[0], 6, 0)
		require.NoError(t, comms[1].Close())
		require.ErrorIs(t, op.Wait(nil), fault.PeerLeft)
		op.Free()
	})
	t.Run("closed", func(t *testing.T) {
		comms := warmed(t, "shm", 2, 6)
		op := post(t, comms[0], 6, 0)
		require.NoError(t, comms[0].Close())
		require.ErrorIs(t, op.Wait(nil), fault.Closed)
		op.Free()
	})
	t.Run("cancelled wait", func(t *testing.T) {
		comms := warmed(t, "shm", 2, 6)
		op := post(t, comms[0], 6, 0)
		var cancel exec.Cancel
		cancel.Fire()
		require.Equal(t, exec.ErrCancelled, op.Wait(&cancel))
		other := post(t, comms[1], 6, 0)
		require.NoError(t, other.Wait(nil))
		require.NoError(t, op.Wait(&cancel))
		free([]*exec.Op{op, other})
	})
}
