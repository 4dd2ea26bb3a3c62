package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// outcomes runs every rank and returns how each ended. A rank that does not return fails the test.
func outcomes(t *testing.T, n int, run func(rank int) error) []error {
	errs := make([]error, n)
	each(t, n, func(rank int) error { errs[rank] = run(rank); return nil })
	return errs
}

func TestMismatchIsNamedOnEveryRank(t *testing.T) {
	cases := map[string]func(c *ccl.Communicator, rank int) error{
		"length": func(c *ccl.Communicator, rank int) error {
			x := make([]float32, 10+rank)
			return ccl.AllReduce(background, c, x, x, ccl.Sum)
		},
		"operator": func(c *ccl.Communicator, rank int) error {
			x := make([]float32, 10)
			return ccl.AllReduce(background, c, x, x, []ccl.Op{ccl.Sum, ccl.Max}[rank])
		},
		"type": func(c *ccl.Communicator, rank int) error {
			if rank == 0 {
				x := make([]float32, 10)
				return ccl.AllReduce(background, c, x, x, ccl.Sum)
			}
			x := make([]int32, 10)
			return ccl.AllReduce(background, c, x, x, ccl.Sum)
		},
		"collective": func(c *ccl.Communicator, rank int) error {
			x := make([]float32, 10)
			if rank == 0 {
				return ccl.AllReduce(background, c, x, x, ccl.Sum)
			}
			return ccl.AllGather(background, c, make([]float32, 5), x)
		},
	}
	for _, transport := range allTransports {
		for name, call := range cases {
			t.Run(transport+"/"+name, func(t *testing.T) {
				comms := group(t, transport, 2, ccl.GroupOptions{})
				for rank, err := range outcomes(t, 2, func(rank int) error { return call(comms[rank], rank) }) {
					require.ErrorIs(t, err, ccl.Mismatch, "rank %d", rank)
					var f *ccl.Error
					require.True(t, errors.As(err, &f))
					require.Equal(t, 1-rank, f.Peer)
				}
			})
		}
	}
}

func TestTimeoutNamesWhoDidNotCome(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 3, ccl.GroupOptions{})
			errs := outcomes(t, 3, func(rank int) error {
				if rank == 2 {
					return nil // never comes
				}
				comms[rank].SetTimeout(200 * time.Millisecond)
				x := make([]float32, 10)
				return ccl.AllReduce(background, comms[rank], x, x, ccl.Sum)
			})
			named := 0
			for rank := range 2 {
				require.Error(t, errs[rank])
				if errors.Is(errs[rank], ccl.Timeout) {
					require.Contains(t, errs[rank].Error(), "rank 2")
					require.Contains(t, errs[rank].Error(), "all_reduce")
					named++
				}
			}
			require.NotZero(t, named, "%v", errs)
			// Every later call fails with the same class (for the text see
			// TestErrorsNameTheOperation).
			x := make([]float32, 1)
			var first *ccl.Error
			require.True(t, errors.As(errs[0], &first))
			require.ErrorIs(t, ccl.AllReduce(background, comms[0], x, x, ccl.Sum), first.Code)
		})
	}
}

func TestAbortEndsAWait(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 2, ccl.GroupOptions{})
			var started sync.WaitGroup
			started.Add(1)
			go func() {
				started.Wait()
				comms[0].Abort("the user said so")
			}()
			x := make([]float32, 10)
			work, err := comms[0].Start(allReduceCall(x))
			require.NoError(t, err)
			started.Done()
			err = work.Wait(background)
			require.ErrorIs(t, err, ccl.Aborted)
			require.Contains(t, err.Error(), "the user said so")
			_, err = comms[0].Start(allReduceCall(x))
			require.ErrorIs(t, err, ccl.Aborted)
			// The peer has received what was sent before; then it notices the abort.
			y := make([]float32, 10)
			if err = ccl.AllReduce(background, comms[1], y, y, ccl.Sum); err == nil {
				err = ccl.AllReduce(background, comms[1], y, y, ccl.Sum)
			}
			require.ErrorIs(t, err, ccl.Aborted)
			require.ErrorContains(t, err, "aborted (rank 0)")
			require.ErrorContains(t, err, "the user said so")
		})
	}
}

// A rank that only sends and has no credit left must also notice that its peer is gone.
func TestSenderNoticesAPeerThatCloses(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 2, ccl.GroupOptions{})
			x := make([]float32, 8<<20)
			done := make(chan error, 1)
			go func() { done <- ccl.Broadcast(background, comms[0], x, 0) }()
			require.NoError(t, comms[1].Close())
			select {
			case err := <-done:
				require.ErrorIs(t, err, ccl.PeerLeft)
				require.Contains(t, err.Error(), "rank 1")
			case <-time.After(deadline):
				t.Fatal("HANG")
			}
		})
	}
}

// TestDeadlineOfAContext has rank 3 come late to a call: the others name it, at the first error and
// at each later one, and so does rank 3 itself.
func TestDeadlineOfAContext(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 4, ccl.GroupOptions{})
			each(t, 4, func(rank int) error { return ccl.Barrier(background, comms[rank]) })
			named := func(rank int, err error) *ccl.Error {
				f := &ccl.Error{}
				require.ErrorIs(t, err, ccl.Timeout, "rank %d", rank)
				require.ErrorAs(t, err, &f)
				require.Equal(t, []int{3}, f.Culprits(), "rank %d: %v", rank, err)
				require.Contains(t, err.Error(), fmt.Sprintf(", rank %d of 4: all_reduce of 1 x i64 (sum)", rank))
				return f
			}
			errs := outcomes(t, 4, func(rank int) error {
				if rank == 3 {
					return nil
				}
				ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
				defer cancel()
				x := []int64{1}
				err := ccl.AllReduce(ctx, comms[rank], x, x, ccl.Sum)
				if !strings.Contains(err.Error(), " reports, ") { // otherwise another rank was first
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				return err
			})
			for rank, err := range errs[:3] {
				named(rank, err)
				x := []int64{1}
				named(rank, ccl.AllReduce(background, comms[rank], x, x, ccl.Sum))
			}
			x := []int64{1}
			err := ccl.AllReduce(background, comms[3], x, x, ccl.Sum)
			if err == nil { // what all have sent was there before it heard that they have given up
				err = ccl.AllReduce(background, comms[3], x, x, ccl.Sum)
			}
			f := named(3, err)
			require.Contains(t, f.Text, "rank 3 is in no call")
		})
	}
}

// TestDeadlineBehindOthers has a call with a deadline wait behind one that has none.
func TestDeadlineBehindOthers(t *testing.T) {
	comms := group(t, "shm", 2, ccl.GroupOptions{})
	x, y := make([]float32, 10), make([]float32, 10)
	before, err := comms[0].Start(allReduceCall(x))
	require.NoError(t, err)
	defer before.Free()
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	err = ccl.AllReduce(ctx, comms[0], y, y, ccl.Sum)
	require.ErrorIs(t, err, ccl.Aborted)
	require.ErrorContains(t, err, "rank 0 of 2: all_reduce of 10 x f32 (sum)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestContextIsCancelled says what the call waited for when its context was cancelled.
func TestContextIsCancelled(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"with a deadline": time.Hour, "without": 0} {
		t.Run(name, func(t *testing.T) {
			comms := group(t, "shm", 2, ccl.GroupOptions{})
			ctx, cancel := context.WithCancelCause(background)
			if timeout != 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, timeout)
				defer stop()
			}
			time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("enough")) })
			x := make([]float32, 10)
			err := ccl.AllReduce(ctx, comms[0], x, x, ccl.Sum)
			require.ErrorIs(t, err, ccl.Aborted)
			require.ErrorContains(t, err, "rank 0 of 2: all_reduce of 10 x f32 (sum)")
			require.ErrorContains(t, err, "the context of all_reduce ended")
			require.ErrorContains(t, err, "enough")
		})
	}
}

// TestContextHadEnded makes no call, and leaves the group as it is.
func TestContextHadEnded(t *testing.T) {
	comms := group(t, "shm", 2, ccl.GroupOptions{})
	x := make([]float32, 10)
	past, cancel := context.WithDeadline(background, time.Now().Add(-time.Second))
	defer cancel()
	cancelled, cancel := context.WithCancel(background)
	cancel()
	for ctx, code := range map[context.Context]error{past: ccl.Timeout, cancelled: ccl.Aborted} {
		err := ccl.AllReduce(ctx, comms[0], x, x, ccl.Sum)
		require.ErrorIs(t, err, code)
		require.ErrorIs(t, err, ctx.Err())
		require.ErrorContains(t, err, "rank 0 of 2: all_reduce: ")
		require.ErrorContains(t, err, "its context had ended before the call was made")
	}
	require.Zero(t, comms[0].Seq())
	each(t, 2, func(rank int) error { return ccl.Barrier(background, comms[rank]) })
}

// TestDeadlineOfAReceive ends the receive alone: the group goes on.
func TestDeadlineOfAReceive(t *testing.T) {
	comms := group(t, "shm", 2, ccl.GroupOptions{})
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	x := make([]float32, 10)
	_, err := ccl.Recv(ctx, comms[0], x, 1, 7)
	require.ErrorIs(t, err, ccl.Timeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "rank 1")
	each(t, 2, func(rank int) error { return ccl.Barrier(background, comms[rank]) })
}

func TestRefusedBeforeAnythingMoves(t *testing.T) {
	comms := group(t, "inproc", 2, ccl.GroupOptions{})
	c := comms[0]
	x, y := make([]float32, 8), make([]float32, 9)
	cases := map[string]struct {
		err  error
		text string
	}{
		"lengths":  {ccl.AllReduce(background, c, x, y, ccl.Sum), "8 elements, the output block 9"},
		"operator": {ccl.AllReduce(background, c, x, x, ccl.BAnd), "reduction band is not defined for f32"},
		"root":     {ccl.Broadcast(background, c, x, 2), "root 2 is not a rank of a group of 2"},
		"blocks":   {ccl.AllGather(background, c, x, y), "9 elements cannot be cut into 2 equal blocks"},
		"overlap":  {ccl.AllReduce(background, c, x[:4], x[2:6], ccl.Sum), "share memory"},
		"peer":     {ccl.Send(background, c, x, 7, 0), "peer 7"},
		"type":     {c.Do(background, &ccl.Call{Coll: dtype.AllReduce, Type: 99}), "not an element type"},
		"fp8": {c.Do(background, &ccl.Call{Coll: dtype.AllReduce, Type: dtype.F8E4M3, Op: dtype.BAnd}),
			"not defined for f8e4m3"},
		"nothing": {c.Do(background, &ccl.Call{}), "not an operation"},
	}
	for name, tt := range cases {
		require.Error(t, tt.err, name)
		require.True(t, strings.Contains(tt.err.Error(), tt.text), "%s: %v", name, tt.err)
	}
}

func TestJoinErrors(t *testing.T) {
	node, err := ccl.NewNode(ccl.NodeOptions{})
	require.NoError(t, err)
	defer node.Close()
	_, err = node.Open(ccl.Config{Rank: 3, Size: 2})
	require.ErrorContains(t, err, "rank 3 of a group of 2")
	open := func(rank int, cfg ccl.Config) *ccl.Endpoint {
		cfg.Rank, cfg.Size = rank, max(cfg.Size, 2)
		e, err := node.Open(cfg)
		require.NoError(t, err)
		return e
	}
	mine := open(0, ccl.Config{})
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	for text, other := range map[string]*ccl.Endpoint{
		"shim version: rank 0 has , rank 1 has 9.9":   open(1, ccl.Config{Client: "9.9"}),
		"number of ranks: rank 0 has 2, rank 1 has 3": open(1, ccl.Config{Size: 3}),
		"GOCCL_TRANSPORT=tcp":                         open(1, ccl.Config{Options: ccl.GroupOptions{Transport: "tcp"}}),
		"says that it is rank 0":                      open(0, ccl.Config{}),
		"did not connect in time: rank 1":             open(1, ccl.Config{}),
	} {
		_, err := mine.Join(ctx, [][]byte{mine.Address(), other.Address()})
		require.ErrorContains(t, err, text)
	}
	_, err = mine.Join(ctx, [][]byte{mine.Address(), []byte("{")})
	require.ErrorContains(t, err, "cannot be read")
	_, err = mine.Join(ctx, [][]byte{mine.Address()})
	require.ErrorContains(t, err, "1 addresses for a group of 2")
}

func TestPeerThatCloses(t *testing.T) {
	for _, transport := range allTransports {
		t.Run(transport, func(t *testing.T) {
			comms := group(t, transport, 2, ccl.GroupOptions{})
			x := make([]float32, 10)
			each(t, 2, func(rank int) error { return ccl.Barrier(background, comms[rank]) })
			require.NoError(t, comms[1].Close())
			err := ccl.AllReduce(background, comms[0], x, x, ccl.Sum)
			require.ErrorIs(t, err, ccl.PeerLeft)
			require.Contains(t, err.Error(), "rank 1")
			require.ErrorIs(t, ccl.Barrier(background, comms[1]), ccl.Closed)
		})
	}
}
