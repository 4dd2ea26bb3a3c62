package ccl

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune/online"
)

var onlineRuns = flag.Int("online.runs", 6, "groups of TestOnlineNeverDiffers")

// randomCalls makes the same calls on all ranks, some of them late, and some posted. Each checks
// its results.
func randomCalls(t *testing.T, comms []*Communicator, seed uint64, calls int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := len(comms)
	onAll(t, comms, func(rank int) error {
		c, order := comms[rank], rand.New(rand.NewPCG(seed, 0))
		late := rand.New(rand.NewPCG(seed, uint64(rank)+1))
		for i := range calls {
			size := []int{60_000, 65_000, 120_000}[order.IntN(3)]
			kind, root, posts := order.IntN(3), order.IntN(n), order.IntN(4) == 0
			if late.IntN(4) == 0 {
				time.Sleep(time.Duration(late.IntN(300)) * time.Microsecond)
			}
			in, out := make([]int32, size), make([]int32, size)
			for k := range in {
				in[k] = int32(rank + i + k%7)
			}
			call := Call{Coll: dtype.AllReduce, Type: dtype.I32, In: one(in), Out: one(out)}
			want := func(k int) int32 { return int32(n*(n-1)/2 + n*(i+k%7)) }
			switch kind {
			case 1:
				call = broadcastCall(c, in, root)
				out, want = in, func(k int) int32 { return int32(root + i + k%7) }
			case 2:
				part := size / n
				call, _ = allGatherCall(c, in[:part], out[:part*n])
				want = func(k int) int32 { return int32(k/part + i + k%part%7) }
				out = out[:part*n]
			}
			var err error
			if posts {
				var w *Work
				if w, err = c.Start(&call); err == nil {
					err = w.Wait(ctx)
				}
			} else {
				err = c.Do(ctx, &call)
			}
			if err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
			for k, x := range out {
				if x != want(k) {
					return fmt.Errorf("call %d, %v: element %d is %d, want %d", i, call.Coll, k, x, want(k))
				}
			}
		}
		return nil
	})
}

// Ranks try, and choose, the same however late each of them is: a plan that differs would be a
// mismatch. Sequence numbers stay those of the program's calls.
func TestOnlineNeverDiffers(t *testing.T) {
	for run := range *onlineRuns {
		hosts := [][]int{{0, 1}, {0, 0}, {0, 1, 2}, {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3, 4}}[run%6]
		comms := onHosts(t, topo.OnHosts(hosts...), GroupOptions{Tune: "online", Determinism: 1 + run%2})
		randomCalls(t, comms, uint64(run), 250)
		for rank, c := range comms {
			require.EqualValues(t, 250, c.Seq())
			require.Equal(t, comms[0].planner.trials.winners, c.planner.trials.winners, "rank %d, %v", rank, hosts)
			require.NoError(t, c.Close())
		}
	}
}

// settled returns the classes of a group that have a winner.
func watch(c *Communicator) *[]online.Result {
	all, t := new([]online.Result), c.planner.trials
	t.tuner = online.New(t.offer, func(r *online.Result) {
		*all = append(*all, *r)
		t.settled(r)
	})
	return all
}

func TestOnlineSettles(t *testing.T) {
	comms := onHosts(t, topo.OnHosts(0, 1, 2), GroupOptions{Tune: "online", Determinism: 1})
	seen := watch(comms[0])
	randomCalls(t, comms, 1, 300)
	require.Len(t, *seen, 6)
	for _, r := range *seen {
		t.Log(r)
	}
}
