package group_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// graph captures what f puts into the stream of the caller.
func (r *rank) graph(f func() error) (*cudatest.Graph, error) {
	r.driver.BeginCapture(r.stream)
	err := f()
	graph, ended := r.driver.EndCapture(r.stream)
	if err != nil && graph != nil {
		r.destroy(graph)
	}
	if err != nil {
		return nil, err
	}
	return graph, ended
}

func (r *rank) destroy(graph *cudatest.Graph) error {
	if err := r.ctx.Enter(false); err != nil {
		return err
	}
	defer r.ctx.Leave()
	defer r.driver.Settle() // until what it has used was given back
	return graph.Destroy()
}

// once captures a graph, launches it and destroys it.
func (r *rank) once(f func() error) error {
	graph, err := r.graph(f)
	if err != nil {
		return err
	}
	defer r.destroy(graph)
	return r.launch(graph)
}

func (r *rank) launch(graph *cudatest.Graph) error {
	if err := r.ctx.Enter(false); err != nil {
		return err
	}
	defer r.ctx.Leave()
	return graph.Launch(r.stream)
}

// graphs has all ranks capture a graph at the same time.
func graphs(t testing.TB, w []*rank, f func(r *rank) error) []*cudatest.Graph {
	t.Helper()
	all := make([]*cudatest.Graph, len(w))
	for _, err := range each(len(w), func(i int) (err error) {
		all[i], err = w[i].graph(func() error { return f(w[i]) })
		return err
	}) {
		require.NoError(t, err)
	}
	return all
}

// launch has all ranks launch a graph.
func launch(t testing.TB, w []*rank, all []*cudatest.Graph) {
	t.Helper()
	for i, r := range w {
		require.NoError(t, r.launch(all[i]))
	}
}

// destroy destroys graphs of all ranks.
func destroy(t testing.TB, w []*rank, graphs ...[]*cudatest.Graph) {
	t.Helper()
	for _, all := range graphs {
		for i, r := range w {
			if all[i] != nil {
				require.NoError(t, r.destroy(all[i]))
			}
		}
	}
}

// Every collective has the bits that it has on the processor in a graph, too. Each is in a graph of
// its own, so windows are given back and taken again.
func TestGraphsMatrix(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		if ranks > 3 && !*full {
			break
		}
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			w := capturing(t, ranks)
			someCalls(t, w, false, dtype.Barrier)
			end(t, w)
		})
	}
}

// capturing makes ranks that make a graph of each call.
func capturing(t *testing.T, ranks int) []*rank { return capturingOn(t, ranks, quick) }

func capturingOn(t *testing.T, ranks int, device cudatest.Options) []*rank {
	opts := eitherWindows[ranks%2]
	opts.CudaGraphs = 2
	w := machine(t, ranks, device, opts, memory)
	for _, r := range w {
		r.captures = true
	}
	return w
}

func TestGraphsUnequalBlocks(t *testing.T) { unequalBlocks(t, capturing(t, 3)) }

// Reductions of more operands than a kernel has are in several steps.
func TestGraphsManyOperands(t *testing.T) {
	w := capturing(t, 9)
	length := func(_, _ int) int { return 10_000 }
	for i, coll := range []dtype.Collective{dtype.AllReduce, dtype.Reduce} {
		same(t, w, ccl.Call{Coll: coll, Type: dtype.BF16, Op: ccl.Avg, Root: 4}, i == 0, 3, length, length)
	}
	end(t, w)
}

// part is some elements of a rank's device memory.
func (r *rank) part(at, count int) []ccl.Block {
	return []ccl.Block{{Ptr: pointerOf(r.device.Ptr() + cuda.Ptr(at)), Count: count}}
}

// Three graphs with several calls each, and calls outside of them, in turn, 50 times, in a full run
// 1,000 times. Each graph computes on the results of its last replay.
func TestGraphReplays(t *testing.T) {
	replays := 50
	if *full {
		replays = 1000
	}
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			const count, apart = 6000, 64 << 10
			opts := eitherWindows[n%2]
			opts.CudaGraphs = 3
			w := machine(t, n, quick, opts, memory)
			want := make([][]uint32, n)
			for i, r := range w {
				data := random(uint64(i), 4*count)
				r.put(t, 0, data)
				r.put(t, apart, data)
				r.put(t, 2*apart, data)
				for k := range count {
					want[i] = append(want[i], binary.NativeEndian.Uint32(data[4*k:]))
				}
			}
			sum := func(r *rank, at int) error {
				b := r.part(at, count)
				return r.enqueue(&ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum, In: b, Out: b})
			}
			sums := graphs(t, w, func(r *rank) error { return sum(r, 0) })
			moves := graphs(t, w, func(r *rank) error { // two broadcasts and a sum
				for root := range 2 {
					call := &ccl.Call{Coll: dtype.Broadcast, Type: dtype.I32, Root: root, Out: r.part(apart, count)}
					if r.Rank() == root {
						call.In = call.Out
					}
					if err := r.enqueue(call); err != nil {
						return err
					}
				}
				return sum(r, apart)
			})
			swaps := graphs(t, w, func(r *rank) error { // there and back
				var in, out []ccl.Block
				for peer := range n {
					in = append(in, r.part(2*apart+peer*4*count/n, count/n)...)
					out = append(out, r.part(3*apart+peer*4*count/n, count/n)...)
				}
				if err := r.enqueue(&ccl.Call{Coll: dtype.AllToAll, Type: dtype.I32, In: in, Out: out}); err != nil {
					return err
				}
				return r.enqueue(&ccl.Call{Coll: dtype.AllToAll, Type: dtype.I32, In: out, Out: in})
			})
			for k := range replays {
				launch(t, w, sums)
				if k%10 == 0 {
					for _, r := range w {
						require.NoError(t, sum(r, 0))
					}
				}
				launch(t, w, moves)
				launch(t, w, swaps)
				if k%10 != 9 {
					continue
				}
				for i, r := range w { // and to keep the streams from being full
					r.fetch(t, 0, 3*apart)
					got := r.get(t, 0, 3*apart)
					times, begin := uint32(1), want[0][7]
					for range k + k/10 + 1 {
						times *= uint32(n)
					}
					total := uint32(0)
					for rank := range w {
						total += want[rank][7]
					}
					require.Equal(t, total*times, binary.NativeEndian.Uint32(got[4*7:]), "%d replays, rank %d", k+1, i)
					for range k + 1 {
						begin *= uint32(n)
					}
					require.Equal(t, begin, binary.NativeEndian.Uint32(got[apart+4*7:]), "%d replays, rank %d", k+1, i)
					require.Equal(t, want[i][7], binary.NativeEndian.Uint32(got[2*apart+4*7:]), "rank %d", i)
				}
			}
			destroy(t, w, sums, moves, swaps)
			end(t, w)
		})
	}
}

// Graphs of several pieces, replayed in a random order of execution: no access that nothing orders.
func TestGraphsOrder(t *testing.T) {
	seeds := uint64(10)
	switch {
	case *full:
		seeds = 300
	case testing.Short():
		seeds = 5
	}
	for seed := range seeds {
		n := 2 + int(seed%2)
		device := cudatest.Options{Seed: seed, Delay: 20 * time.Microsecond}
		w := machine(t, n, device, eitherWindows[seed/2%2], 256<<10)
		for _, r := range w {
			r.put(t, 0, random(seed, 256<<10))
		}
		two := [2][]*cudatest.Graph{}
		for k := range two {
			two[k] = graphs(t, w, func(r *rank) error {
				if err := r.enqueue(r.reduce(20_000 + 5000*k)); err != nil {
					return err
				}
				call := &ccl.Call{Coll: dtype.Broadcast, Type: dtype.U8, Root: k, Out: r.part(64<<10, 50_000)}
				if r.Rank() == k {
					call.In = call.Out
				}
				return r.enqueue(call)
			})
		}
		for k := range 12 {
			launch(t, w, two[k*k%3%2])
			if k%5 == int(seed%5) {
				for _, r := range w {
					require.NoError(t, r.enqueue(r.reduce(30_000)))
				}
			}
		}
		destroy(t, w, two[:]...)
		end(t, w)
	}
}

// What cannot be part of a graph is refused by name, and nothing else changes.
func TestCaptureIsRefused(t *testing.T) {
	for name, opts := range map[string]ccl.GroupOptions{
		"staged":    {CudaBuffSize: 256 << 10, CudaRoute: "staged"},
		"no graphs": {CudaBuffSize: 256 << 10, CudaRoute: "windows", CudaGraphs: -1},
		"windows":   overWindows,
	} {
		t.Run(name, func(t *testing.T) {
			w := machine(t, 2, quick, opts, memory)
			calls := []*ccl.Call{{Coll: dtype.Barrier}, w[0].message(dtype.Send, 1, 0, 100, 0)}
			if name != "windows" {
				calls = append(calls, w[0].reduce(1000))
			}
			for _, call := range calls {
				_, err := w[0].graph(func() error { return w[0].enqueue(call) })
				require.ErrorIs(t, err, fault.NotSupported)
				require.ErrorContains(t, err, "CUDA graph")
			}
			length := func(_, _ int) int { return 1000 }
			same(t, w, ccl.Call{Coll: dtype.AllReduce, Type: dtype.F32, Op: ccl.Sum}, true, 1, length, length)
			end(t, w)
		})
	}
}

// All ranks are told whose windows are used up, and go on when a graph was destroyed.
func TestGraphsUsedUp(t *testing.T) {
	opts := overWindows
	opts.CudaGraphs = 1
	w := machine(t, 2, quick, opts, memory)
	reduce := func(r *rank) error { return r.enqueue(r.reduce(1000)) }
	first := graphs(t, w, reduce)
	for _, err := range each(2, func(i int) error {
		_, err := w[i].graph(func() error { return reduce(w[i]) })
		return err
	}) {
		require.ErrorIs(t, err, fault.NotSupported)
		require.ErrorContains(t, err, "rank 0 has no window left for a CUDA graph")
		require.ErrorContains(t, err, "GOCCL_CUDA_GRAPHS")
	}
	launch(t, w, first)
	destroy(t, w, first)
	second := graphs(t, w, reduce)
	launch(t, w, second)
	destroy(t, w, second)
	end(t, w)
}

// A rank that does not capture what the others do is named.
func TestCapturedAlone(t *testing.T) {
	opts := overWindows
	opts.Timeout = 300 * time.Millisecond
	w := machine(t, 2, quick, opts, memory)
	_, err := w[0].graph(func() error { return w[0].enqueue(w[0].reduce(1000)) })
	require.ErrorIs(t, err, fault.Timeout)
	require.ErrorContains(t, err, "rank 1 has captured 0 calls, and rank 0 1")
	bury(t, w)
}

// So is one that captures another call.
func TestCapturedMismatch(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	made := make([]*cudatest.Graph, 2)
	each(2, func(i int) (err error) {
		made[i], err = w[i].graph(func() error { return w[i].enqueue(w[i].reduce(1000 + i)) })
		return err
	})
	for _, r := range w {
		require.Eventually(t, func() bool { return r.Failure() != nil }, hang, time.Millisecond)
		require.ErrorIs(t, r.Failure(), fault.Mismatch)
		require.ErrorContains(t, r.Failure(), "all_reduce seq 1, 1001 x f32")
	}
	destroy(t, w, made)
	bury(t, w)
}

// replaying makes ranks of which the first replays a graph, and waits for the second.
func replaying(t *testing.T, opts ccl.GroupOptions) ([]*rank, []*cudatest.Graph) {
	w := machine(t, 2, cudatest.Options{Delay: -1, Stuck: -1, Pending: true}, opts, memory)
	graph := graphs(t, w, func(r *rank) error {
		if err := r.enqueue(r.reduce(20_000)); err != nil {
			return err
		}
		return r.enqueue(r.reduce(100_000))
	})
	for range 3 {
		launch(t, w, graph)
	}
	require.NoError(t, w[0].launch(graph[0]))
	return w, graph
}

// ends waits until the stream of the caller has ended.
func (r *rank) ends(t *testing.T) {
	t.Helper()
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		done, err := r.stream.Done()
		require.NoError(t, err)
		if done {
			return
		}
		require.Less(t, time.Since(begin), hang)
	}
}

// An abort in the middle of a replay lets the stream go, and those of later replays.
func TestGraphAborted(t *testing.T) {
	for _, opts := range eitherWindows {
		w, graph := replaying(t, opts)
		w[0].Abort(fault.New(fault.Aborted, "the test ends it"))
		w[0].ends(t)
		for range 3 {
			launch(t, w, graph)
		}
		for _, r := range w {
			r.ends(t)
			require.Eventually(t, func() bool { return r.Failure() != nil }, hang, time.Millisecond)
			r.stays(t, fault.Aborted)
		}
		destroy(t, w, graph)
		bury(t, w)
	}
}

// A peer that does not replay, or leaves, is named.
func TestGraphReplayedAlone(t *testing.T) {
	opts := overWindows
	opts.Timeout = 300 * time.Millisecond
	w, graph := replaying(t, opts)
	w[0].ends(t)
	require.ErrorIs(t, w[0].Failure(), fault.Timeout)
	require.ErrorContains(t, w[0].Failure(), "rank 1 has not come as far")
	require.ErrorContains(t, w[0].Failure(), "in a replay of a CUDA graph")
	require.ErrorContains(t, w[0].Failure(), "all_reduce of 20000 x f32")
	destroy(t, w, graph)
	bury(t, w)

	w, graph = replaying(t, overWindows)
	w[1].ends(t)
	w[1].leave(t)
	w[0].ends(t)
	require.Error(t, w[0].Failure())
	require.ErrorContains(t, w[0].Failure(), "rank 1")
	destroy(t, w, graph)
	bury(t, w[:1])
}

// A graph that outlives its group keeps the memory that it uses.
func TestGraphOutlivesGroup(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	graph := graphs(t, w, func(r *rank) error { return r.enqueue(r.reduce(1000)) })
	launch(t, w, graph)
	for _, r := range w {
		r.ends(t)
		require.NoError(t, r.DeviceGroup.Close())
	}
	launch(t, w, graph)
	for _, r := range w {
		r.ends(t)
		r.release(t)
	}
	destroy(t, w, graph)
	require.Eventually(t, func() bool { return len(w[0].driver.Leaks()) == 0 }, hang, time.Millisecond)
	w[0].driver.Check(t)
}

// To wait for a call in a graph on the processor is to wait for nothing; it counts as ended when it
// is joined.
func TestWaitInCapture(t *testing.T) {
	w := machine(t, 2, quick, overWindows, memory)
	graph := graphs(t, w, func(r *rank) error {
		op, err := r.Enqueue(r.reduce(1000), r.stream)
		if err != nil {
			return err
		}
		defer op.Free()
		done, err := op.Done()
		require.False(t, done)
		require.NoError(t, err)
		done, err = op.Wait(0)
		require.True(t, done)
		require.NoError(t, err)
		require.NoError(t, op.Join(r.stream))
		done, err = op.Done()
		require.True(t, done)
		return err
	})
	launch(t, w, graph)
	destroy(t, w, graph)
	end(t, w)
}

// A group has memory for some graphs, and makes more as they are captured, up to the limit. All of
// them go on working, and what was destroyed is used again.
func TestGraphsGrow(t *testing.T) {
	for i, opts := range eitherWindows {
		for _, devices := range []int{1, 2} {
			t.Run(fmt.Sprint(opts.CudaRoute, ", devices ", devices), func(t *testing.T) {
				t.Parallel()
				most := 100
				switch {
				case *full:
					most = 1000
				case testing.Short():
					most = 40
				}
				opts, device := opts, quick
				opts.CudaGraphs = most
				device.Devices = devices
				const count = 64
				w := machine(t, 2+i, device, opts, 512<<10)
				want := make([]byte, 4*count)
				for i, r := range w {
					data := random(uint64(i), 4*count)
					r.put(t, 0, data)
					for k := 0; k < len(data); k += 4 {
						sum := binary.NativeEndian.Uint32(want[k:]) + binary.NativeEndian.Uint32(data[k:])
						binary.NativeEndian.PutUint32(want[k:], sum)
					}
				}
				capture := func(at int) []*cudatest.Graph {
					return graphs(t, w, func(r *rank) error {
						return r.enqueue(&ccl.Call{Coll: dtype.AllReduce, Type: dtype.I32, Op: ccl.Sum,
							In: r.part(0, count), Out: r.part(4*count*(1+at), count)})
					})
				}
				var all [][]*cudatest.Graph
				for at := range most {
					all = append(all, capture(at))
				}
				for _, err := range each(len(w), func(i int) error {
					_, err := w[i].graph(func() error { return w[i].enqueue(w[i].reduce(count)) })
					return err
				}) {
					require.ErrorIs(t, err, fault.NotSupported)
					require.ErrorContains(t, err, fmt.Sprintf("there are %d graphs already; a larger GOCCL_CUDA_GRAPHS", most))
				}
				destroy(t, w, all[20])
				all[20] = nil
				all = append(all, capture(most))
				for _, graph := range all {
					if graph != nil {
						launch(t, w, graph)
					}
				}
				for at := range most + 1 {
					if at == 20 {
						continue
					}
					for _, r := range w {
						r.fetch(t, 4*count*(1+at), 4*count)
						require.Equal(t, want, r.get(t, 4*count*(1+at), 4*count), "graph %d", at)
					}
				}
				all[20] = make([]*cudatest.Graph, len(w))
				destroy(t, w, all...)
				end(t, w)
			})
		}
	}
}
