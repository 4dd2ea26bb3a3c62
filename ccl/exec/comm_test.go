package exec_test

import (
	"context"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
)

// fixed is a planner that always takes one algorithm.
type fixed struct{ a algo.Algorithm }

func (f fixed) Choose(dtype.Collective, int64) int { return 0 }

func (f fixed) Make(_ int, spec plan.Spec) (*plan.Plan, error) { return f.a.Make(spec) }

// comms joins n ranks of this process over inproc. All of them use the same planner.
func comms(t testing.TB, n int, planner exec.Planner) []*exec.Comm {
	doorbell := park.NewDoorbell()
	fabric := inproc.New(doorbell)
	progress := exec.NewProgress(doorbell)
	all := make([]*exec.Comm, n)
	links := make([][]transport.Link, n)
	var group sync.WaitGroup
	for rank := range n {
		links[rank] = make([]transport.Link, n)
		for peer := range n {
			if peer == rank {
				continue
			}
			group.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				var err error
				links[rank][peer], err = fabric.Connect(ctx, fabric.Address(),
					transport.Session{Rank: rank, Peer: peer, Channels: exec.LinkChannels(exec.PlanChannels)})
				if err != nil {
					panic(err)
				}
			})
		}
	}
	group.Wait()
	for rank := range n {
		var err error
		all[rank], err = exec.New(exec.Options{
			Name: "test", Rank: rank, Links: links[rank], Doorbell: doorbell, Planner: planner,
			Progress: progress, Timeout: time.Minute,
		})
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, c := range all {
			c.Close()
		}
		progress.Close()
		fabric.Close()
	})
	return all
}

// eachRank runs all ranks concurrently, and returns the error of each.
func eachRank(ranks int, run func(rank int) error) []error {
	errs := make([]error, ranks)
	var group sync.WaitGroup
	for rank := range ranks {
		group.Go(func() { errs[rank] = run(rank) })
	}
	group.Wait()
	return errs
}

func each(t testing.TB, n int, run func(rank int) error) {
	t.Helper()
	for rank, err := range eachRank(n, run) {
		require.NoError(t, err, "rank %d", rank)
	}
}

func block(x []float64) exec.Block {
	return exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x)}
}
