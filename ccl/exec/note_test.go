package exec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

// TestEveryCallIsRecorded checks that calls are recorded once and in order, wherever in Run or Post
// that happens.
func TestEveryCallIsRecorded(t *testing.T) {
	type line struct {
		coll    dtype.Collective
		seq     uint64
		in, out uint64
	}
	for _, name := range []string{"inproc", "shm", "tcp"} {
		for way, run := range map[string]func(*exec.Comm, *exec.Call) error{
			"Run": func(c *exec.Comm, call *exec.Call) error { return c.Run(call) },
			"Post": func(c *exec.Comm, call *exec.Call) error {
				op, err := c.Post(call)
				if err != nil {
					return err
				}
				defer op.Free()
				return op.Wait(nil)
			},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				comms, rings := recorded(t, name, 2)
				each(t, 2, func(rank int) error {
					for range 4 { // from the third on, the programs are kept
						for _, n := range []int{3, 50_000} {
							x, data := vector(rank, n, 0), make([]byte, n)
							if err := run(comms[rank], sumCall(x, x)); err != nil {
								return err
							}
							message := messageCall(dtype.Send, data, 1, 1)
							if rank == 1 {
								message = messageCall(dtype.Recv, data, 0, 1)
							}
							if err := run(comms[rank], message); err != nil {
								return err
							}
						}
					}
					return nil
				})
				for rank, ring := range rings {
					var want, got []line
					for i := range uint64(8) {
						n := []uint64{3, 50_000}[i%2]
						message := line{dtype.Send, i + 1, n, 0}
						if rank == 1 {
							message = line{dtype.Recv, i + 1, 0, n}
						}
						want = append(want, line{dtype.AllReduce, i + 1, n, n}, message)
					}
					records := ring.Records()
					for i, r := range records {
						got = append(got, line{r.Coll, r.Seq, r.In, r.Out})
						require.True(t, r.Done && r.Code == fault.OK, "%+v", r)
						require.False(t, i > 0 && r.Begun.Before(records[i-1].Begun))
					}
					require.Equal(t, want, got)
				}
			})
		}
	}
}
