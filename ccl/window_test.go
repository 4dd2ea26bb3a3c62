package ccl_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/mem"
)

const overWindows = "all_reduce=two_shot_window,all_gather=window,broadcast=window,reduce_scatter=window," +
	"scatter=window,gather=window,reduce=window"

// TestOverWindows runs algorithms that read windows of peers, in a process and between processes:
// all sizes, including those of several pieces, and random sequences with several operations in
// flight. The memory of the windows must come back.
func TestOverWindows(t *testing.T) {
	opts := ccl.GroupOptions{Algo: overWindows}
	counts, sizes := []int{0, 1, 7, 1000, 40_000, 600_001}, []int{1, 2, 3, 4}
	if testing.Short() {
		counts, sizes, opts.BuffSize = []int{0, 7, 70_001}, []int{3}, 256<<10
	}
	for _, transport := range []string{"inproc", "shm"} {
		for _, ranks := range sizes {
			t.Run(fmt.Sprintf("%s/%d", transport, ranks), func(t *testing.T) {
				comms := group(t, transport, ranks, opts)
				each(t, ranks, func(rank int) error {
					for root, n := range counts {
						if err := oneOfEach(comms[rank], n, root); err != nil {
							return err
						}
					}
					// TestRandomSequences runs over windows too, where there are any.
					if ranks == 1 || testing.Short() {
						return nil
					}
					return sequence(comms[rank], int64(ranks), 150)
				})
			})
		}
	}
	t.Run("memory", func(t *testing.T) {
		all := nodesFor(t, 2, "shm")
		open := func(opts ccl.GroupOptions) {
			opts.Transport = "shm"
			for _, c := range join(t, all, opts, "test") {
				c.Close()
			}
		}
		open(ccl.GroupOptions{}) // connections and pools stay
		before := mem.InUse()
		for range 3 {
			open(opts)
		}
		require.Equal(t, before, mem.InUse())
	})
}

// Ranks that share no memory must all refuse such an algorithm, and go on.
func TestOverWindowsWithoutMemory(t *testing.T) {
	comms := group(t, "tcp", 2, ccl.GroupOptions{Algo: overWindows})
	each(t, 2, func(rank int) error {
		x := make([]float32, 9)
		err := ccl.AllReduce(background, comms[rank], x, x, ccl.Sum)
		if !errors.Is(err, fault.NotSupported) {
			return fmt.Errorf("got %w", err)
		}
		require.ErrorContains(t, err, "plan two_shot_window reads windows of peers: it needs ranks that all share memory")
		return ccl.Barrier(background, comms[rank])
	})
}

// A user's plan may read windows, and may use as many channels as the plan language has.
func TestOwnPlanNeeds(t *testing.T) {
	ref := func(b plan.Buffer, i int) plan.Ref { return plan.Ref{Buf: b, At: i, N: 1} }
	wide := &plan.Plan{Name: "wide", Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 2},
		Split: plan.MaxChans, Chans: plan.MaxChans,
		Needs: plan.Messages, Program: func(rank int) plan.Program {
			var p plan.Program
			for i := range plan.MaxChans {
				p.Lanes = append(p.Lanes,
					[]plan.Step{{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, i)}, Peer: 1 - rank, Chan: i}},
					[]plan.Step{{Kind: plan.RecvReduce, Dst: ref(plan.Out, i), Src: []plan.Ref{ref(plan.In, i)},
						Peer: 1 - rank, Chan: i, MsgFirst: rank == 1, Final: true}})
			}
			return p
		}}
	peek := &plan.Plan{Name: "peek", Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 2}, Split: 1, Flags: 1, Win: 1,
		Needs: plan.Puts | plan.Gets, Alias: plan.InPlace, Program: func(rank int) plan.Program {
			sum := plan.Step{Kind: plan.GetReduce, Dst: ref(plan.Out, 0),
				Src: []plan.Ref{ref(plan.Win, 0), ref(plan.Win, 0)}, From: []int{0, 1}, Final: true}
			return plan.Program{Win: []plan.Extent{{}}, Lanes: [][]plan.Step{{
				{Kind: plan.Copy, Dst: ref(plan.Win, 0), Src: []plan.Ref{ref(plan.In, 0)}},
				{Kind: plan.Signal, Peer: 1 - rank}, {Kind: plan.Wait, Peer: 1 - rank}, sum,
			}}}
		}}
	for _, p := range []*plan.Plan{wide, peek} {
		for _, transport := range allTransports {
			t.Run(p.Name+"/"+transport, func(t *testing.T) {
				comms := group(t, transport, 2, ccl.GroupOptions{Plan: planFile(t, p.Text())})
				each(t, 2, func(rank int) error {
					for _, n := range []int{1, 1000, 70_001} {
						x, out := input(rank, n, 0), make([]float32, n)
						err := ccl.AllReduce(background, comms[rank], x, out, ccl.Sum)
						if p == peek && (transport == "tcp" || transport == "rdma") {
							if !errors.Is(err, fault.NotSupported) {
								return fmt.Errorf("got %w", err)
							}
							continue
						}
						if err != nil {
							return err
						}
						if err := same(out, sums(2, n, 0)); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
