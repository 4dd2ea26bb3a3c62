package exec_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/mem"
)

// TestGetsAreRefused checks that all ranks refuse a plan that reads windows of peers if the ranks
// share no memory, and that the group still works afterwards.
func TestGetsAreRefused(t *testing.T) {
	gets := func(spec plan.Spec) *plan.Plan {
		return &plan.Plan{Name: "gets", Spec: spec, Split: 1, Flags: 1, Win: 1, Needs: plan.Puts | plan.Gets,
			Program: func(rank int) plan.Program {
				peer := 1 - rank
				return plan.Program{Win: []plan.Extent{{}}, Lanes: [][]plan.Step{{
					{Kind: plan.Copy, Dst: chunk(plan.Win, 0), Src: []plan.Ref{chunk(plan.In, 0)}},
					{Kind: plan.Signal, Peer: peer},
					{Kind: plan.Wait, Peer: peer},
					{Kind: plan.GetReduce, Dst: chunk(plan.Out, 0),
						Src: []plan.Ref{chunk(plan.Win, 0), chunk(plan.Win, 0)}, From: []int{0, 1}, Final: true},
				}}}
			}}
	}
	all := join(t, "tcp", 2, plans{dtype.AllReduce: gets, dtype.AllGather: everybody}.of)
	each(t, 2, func(rank int) error {
		err := all[rank].Run(sumCall(vector(rank, 9, 0), make([]float32, 9)))
		if !errors.Is(err, fault.NotSupported) {
			return fmt.Errorf("got %v", err)
		}
		require.ErrorContains(t, err,
			"plan gets reads windows of peers (lane 0, step 3 is a getreduce): it needs ranks that all share memory")
		var mine, out [2]float32
		return all[rank].Run(&exec.Call{
			Coll: dtype.AllGather, Type: dtype.F32,
			In: []exec.Block{blockOf(mine[:1])}, Out: []exec.Block{blockOf(out[:1]), blockOf(out[1:])},
		})
	})
}

// shelf is an all_to_all over windows: every rank copies its blocks into its window, and gets the
// blocks that are for it from its peers' windows.
func shelf(spec plan.Spec) *plan.Plan {
	n := spec.Ranks
	return &plan.Plan{Name: "shelf", Spec: spec, Split: 1, Flags: 1, Win: n, Needs: plan.Puts | plan.Gets,
		Program: func(rank int) plan.Program {
			p := plan.Program{Win: make([]plan.Extent, n)}
			var lane []plan.Step
			for to := range n {
				p.Win[to] = plan.Extent{From: rank, To: to}
				lane = append(lane,
					plan.Step{Kind: plan.Copy, Dst: chunk(plan.Win, to), Src: []plan.Ref{chunk(plan.In, to)}})
			}
			for k := 1; k < n; k++ {
				lane = append(lane, plan.Step{Kind: plan.Signal, Peer: (rank + k) % n})
			}
			lane = append(lane,
				plan.Step{Kind: plan.Copy, Dst: chunk(plan.Out, rank), Src: []plan.Ref{chunk(plan.Win, rank)}})
			for k := 1; k < n; k++ {
				from := (rank + k) % n
				lane = append(lane, plan.Step{Kind: plan.Wait, Peer: from},
					plan.Step{Kind: plan.Get, Dst: chunk(plan.Out, from), Src: []plan.Ref{chunk(plan.Win, rank)},
						Peer: from})
			}
			p.Lanes = [][]plan.Step{lane}
			return p
		}}
}

// TestShelf checks that the ranks of an all_to_all, which know only the lengths of their own
// blocks, exchange the lengths, so that all ranks cut the operation into the same pieces. The
// exchange of lengths itself runs over messages and over windows.
func TestShelf(t *testing.T) {
	for _, gather := range []func(plan.Spec) *plan.Plan{everybody, catalogued("window")} {
		for _, ranks := range []int{1, 2, 3} {
			all := join(t, "shm", ranks, plans{dtype.AllToAll: shelf, dtype.AllGather: gather}.of)
			each(t, ranks, func(rank int) error {
				for turn, n := range []int{0, 1, 700, 3, 5001, 0, 44} {
					length := func(from, to int) int { return (from*5 + to*3 + turn) % 4 * n }
					value := func(from, to, i int) float32 {
						return float32(from*1000+to*100) + float32(i%97) + float32(turn)/4
					}
					call := exec.Call{Coll: dtype.AllToAll, Type: dtype.F32}
					var out [][]float32
					for r := range ranks {
						in := make([]float32, length(rank, r))
						for i := range in {
							in[i] = value(rank, r, i)
						}
						out = append(out, make([]float32, length(r, rank)))
						call.In, call.Out = append(call.In, blockOf(in)), append(call.Out, blockOf(out[r]))
					}
					if err := all[rank].Run(&call); err != nil {
						return err
					}
					for r, x := range out {
						for i := range x {
							if x[i] != value(r, rank, i) {
								return fmt.Errorf("turn %d: element %d of %d from rank %d is %v",
									turn, i, len(x), r, x[i])
							}
						}
					}
				}
				return nil
			})
		}
	}
}

// TestRootedShelf is TestShelf for gather and scatter, of which only the root knows all lengths.
func TestRootedShelf(t *testing.T) {
	for _, gather := range []func(plan.Spec) *plan.Plan{everybody, catalogued("window")} {
		for _, ranks := range []int{1, 2, 3} {
			all := join(t, "shm", ranks, plans{dtype.Gather: catalogued("window"), dtype.Scatter: catalogued("window"),
				dtype.AllGather: gather}.of)
			each(t, ranks, func(rank int) error {
				for turn, n := range []int{0, 1, 700, 3, 5001, 0, 44, 20_000} {
					length := func(of int) int { return (of*5 + turn) % 4 * n }
					value := func(of, i int) float32 { return float32(of*1000+i%97) + float32(turn)/4 }
					root := turn % ranks
					for _, coll := range []dtype.Collective{dtype.Scatter, dtype.Gather} {
						call := exec.Call{Coll: coll, Type: dtype.F32, Root: root}
						mine, blocks := make([]float32, length(rank)), make([][]float32, ranks)
						var many []exec.Block
						for of := range blocks {
							if blocks[of] = make([]float32, length(of)); rank == root {
								many = append(many, blockOf(blocks[of]))
							}
							if coll == dtype.Gather {
								continue
							}
							for i := range blocks[of] {
								blocks[of][i] = value(of, i)
							}
						}
						if coll == dtype.Gather {
							for i := range mine {
								mine[i] = value(rank, i)
							}
							call.In, call.Out = []exec.Block{blockOf(mine)}, many
						} else {
							call.In, call.Out = many, []exec.Block{blockOf(mine)}
						}
						if err := all[rank].Run(&call); err != nil {
							return err
						}
						results := map[int][]float32{rank: mine}
						if coll == dtype.Gather && rank == root {
							for of := range blocks {
								results[of] = blocks[of]
							}
						}
						for of, x := range results {
							for i := range x {
								if x[i] != value(of, i) {
									return fmt.Errorf("turn %d, %v: element %d of %d of rank %d is %v",
										turn, coll, i, len(x), of, x[i])
								}
							}
						}
					}
				}
				return nil
			})
		}
	}
}

// TestSlotsAreWaitedFor checks that a root which broadcasts over its window runs ahead of the
// others by as many operations as there are slots, and no further, since then it would overwrite
// data that peers have not read.
func TestSlotsAreWaitedFor(t *testing.T) {
	for _, name := range []string{"inproc", "shm"} {
		t.Run(name, func(t *testing.T) {
			const rounds, n = 9, 500
			planner := plans{dtype.Broadcast: catalogued("window")}.of
			broadcast := func(x []float32, root bool) *exec.Call {
				call := &exec.Call{Coll: dtype.Broadcast, Type: dtype.F32, Out: []exec.Block{blockOf(x)}}
				if root {
					call.In = call.Out
				}
				return call
			}
			t.Run("result", func(t *testing.T) {
				all := join(t, name, 3, planner)
				var ops []*exec.Op
				for round := range rounds {
					x := slices.Repeat([]float32{float32(round)}, n)
					op, err := all[0].Post(broadcast(x, true))
					require.NoError(t, err)
					ops = append(ops, op)
				}
				require.Eventually(t, func() bool { done, _ := ops[1].Done(); return done },
					10*time.Second, time.Millisecond)
				time.Sleep(5 * time.Millisecond) // the third operation would end if it did not wait
				done, err := ops[2].Done()
				require.NoError(t, err)
				require.False(t, done, "the root went on while nobody had read what it wrote first")
				each(t, 3, func(rank int) error {
					for round := range rounds {
						if rank == 0 {
							err := ops[round].Wait(nil)
							ops[round].Free()
							if err != nil {
								return err
							}
							continue
						}
						x := make([]float32, n)
						if err := all[rank].Run(broadcast(x, false)); err != nil {
							return err
						}
						if i := slices.IndexFunc(x, func(v float32) bool { return v != float32(round) }); i >= 0 {
							return fmt.Errorf("round %d: element %d is %v", round, i, x[i])
						}
					}
					return nil
				})
			})
			x := make([]float32, n)
			start := func(t *testing.T, c *exec.Comm) (third *exec.Call) {
				for range 2 {
					require.NoError(t, c.Run(broadcast(x, true)))
				}
				third = broadcast(x, true)
				third.Timeout = 100 * time.Millisecond
				return third
			}
			t.Run("deadline", func(t *testing.T) {
				all := join(t, name, 2, planner)
				err := all[0].Run(start(t, all[0]))
				require.ErrorIs(t, err, fault.Timeout)
				require.ErrorContains(t, err, "rank 0 waits for 1 (which has not ended an earlier call)")
			})
			t.Run("leaves", func(t *testing.T) {
				all := join(t, name, 2, planner)
				third := start(t, all[0])
				third.Timeout = time.Minute
				op, err := all[0].Post(third)
				require.NoError(t, err)
				defer op.Free()
				require.NoError(t, all[1].Run(broadcast(make([]float32, n), false)), "what was written can be read")
				require.NoError(t, op.Wait(nil))
				op, err = all[0].Post(third)
				require.NoError(t, err)
				defer op.Free()
				require.NoError(t, all[1].Close())
				err = op.Wait(nil)
				require.ErrorIs(t, err, fault.PeerLeft)
				require.ErrorContains(t, err, "rank 1")
			})
		})
	}
}

// TestWindowsAreGivenBack checks that a group releases its windows.
func TestWindowsAreGivenBack(t *testing.T) {
	for _, name := range []string{"inproc", "shm"} {
		t.Run(name, func(t *testing.T) {
			before := mem.InUse()
			for range 3 {
				all := members(t, name, 3)
				comms := make([]*exec.Comm, 3)
				for rank, m := range all {
					comms[rank] = m.comm(t, rank, plans{dtype.AllReduce: catalogued("two_shot_window")})
				}
				each(t, 3, func(rank int) error {
					return comms[rank].Run(sumCall(vector(rank, 3000, 0), make([]float32, 3000)))
				})
				for _, c := range comms {
					require.NoError(t, c.Close())
				}
				for _, m := range all {
					m.progress.Close()
					require.NoError(t, m.fabric.Close())
				}
			}
			// The pages of the doorbells remain: threads may sleep on them.
			require.LessOrEqual(t, mem.InUse()-before, int64(3*3*4096))
		})
	}
}

func TestWindowTooSmall(t *testing.T) {
	all := members(t, "inproc", 2)
	_, err := exec.New(exec.Options{
		Rank: 0, Links: all[0].links, Doorbell: all[0].doorbell,
		Window: func() *mem.Window {
			w, err := mem.NewWindow(window.Bytes(64)-1, false)
			require.NoError(t, err)
			t.Cleanup(w.Release)
			return w
		}(),
	})
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "the least is 8320")
	w, err := mem.NewWindow(window.Bytes(2*slotBytes), false)
	require.NoError(t, err)
	defer w.Release()
	_, err = exec.New(exec.Options{Rank: 0, Links: all[0].links, Doorbell: all[0].doorbell, Window: w})
	require.ErrorIs(t, err, fault.Internal)
	require.ErrorContains(t, err, "its window has 16384 bytes, that of rank 0 has 24576")
	for _, m := range all {
		m.window.Release()
	}
}
