package exec_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
)

// TestKnownCalls checks that different small calls in turn, each with other buffers than the time
// before, are kept as programs and give the right result. A call that differs from a known call in
// anything does not run by its program.
func TestKnownCalls(t *testing.T) {
	const ranks, kinds, rounds = 3, 12, 5
	for _, name := range []string{"inproc", "shm"} {
		t.Run(name, func(t *testing.T) {
			comms := join(t, name, ranks, plans{dtype.AllReduce: catalogued("one_shot_window")}.of)
			var group sync.WaitGroup
			for rank, c := range comms {
				group.Go(func() {
					for round := range rounds {
						for kind := range kinds {
							// 8, 16, 24 … bytes: a pointer past the end of such an object points
							// into the next object, and the race detector's checks find it.
							n := 2 * (1 + kind/2)
							in, out := make([]float32, n), make([]float32, n)
							for i := range n {
								in[i] = float32(rank + kind + i)
							}
							call := sumCall(in, out)
							want := func(i int) float32 { return float32(ranks*(kind+i) + ranks*(ranks-1)/2) }
							if kind%2 == 1 {
								call.Op = dtype.Max
								want = func(i int) float32 { return float32(ranks - 1 + kind + i) }
							}
							if err := c.Run(call); err != nil {
								t.Error(err)
								return
							}
							for i := range n {
								if out[i] != want(i) {
									t.Errorf("rank %d, round %d, kind %d, element %d: %v, want %v",
										rank, round, kind, i, out[i], want(i))
								}
							}
						}
					}
				})
			}
			group.Wait()
			for _, c := range comms {
				require.Equal(t, kinds, exec.Programs(c))
			}
		})
	}
}

// TestKnownCallsAreChecked checks that an invalid call is refused with the same text whether its
// shape is known or not, and that the group still works afterwards.
func TestKnownCallsAreChecked(t *testing.T) {
	comms := join(t, "inproc", 2, plans{dtype.AllReduce: catalogued("one_shot_window")}.of)
	both := func(f func(rank int, c *exec.Comm) error) {
		t.Helper()
		each(t, 2, func(rank int) error { return f(rank, comms[rank]) })
	}
	x := [2][]float32{vector(0, 8, 1), vector(1, 8, 1)}
	y := [2][]float32{make([]float32, 8), make([]float32, 8)}
	for range 4 {
		both(func(rank int, c *exec.Comm) error { return c.Run(sumCall(x[rank][:6], y[rank][:6])) })
	}
	require.Equal(t, 1, exec.Programs(comms[0]))
	for rank, c := range comms {
		require.ErrorContains(t, c.Run(sumCall(x[rank][:6], x[rank][2:8])), "share memory")
		nowhere := sumCall(x[rank][:6], y[rank][:6])
		nowhere.Out[0].Ptr = nil
		require.ErrorContains(t, c.Run(nowhere), "no memory")
		hurried := sumCall(x[rank][:6], y[rank][:6])
		hurried.Timeout = -1
		require.ErrorContains(t, c.Run(hurried), "is negative")
		_, err := c.Post(hurried)
		require.ErrorContains(t, err, "is negative")
	}
	both(func(rank int, c *exec.Comm) error { return c.Run(sumCall(x[rank][:6], x[rank][:6])) })
}

// TestKnownMismatch checks that another call in place of a known one is a mismatch on both sides,
// and gives no wrong sum.
func TestKnownMismatch(t *testing.T) {
	comms := join(t, "inproc", 2, plans{dtype.AllReduce: catalogued("one_shot_window")}.of)
	var group sync.WaitGroup
	errs := make([]error, 2)
	for rank, c := range comms {
		group.Go(func() {
			x := vector(rank, 6, 1)
			for range 4 {
				if errs[rank] = c.Run(sumCall(x, x)); errs[rank] != nil {
					return
				}
			}
			call := sumCall(x[:4+rank], x[:4+rank])
			errs[rank] = c.Run(call)
		})
	}
	group.Wait()
	for rank, err := range errs {
		require.ErrorContains(t, err, "all ranks of a group must make the same calls", "rank %d", rank)
	}
}

// TestToldLengths checks a plan in which only two ranks know the length of each block. The ranks of
// an all_to_all announce the lengths, and a rank that expects another length detects this.
func TestToldLengths(t *testing.T) {
	for _, test := range []struct {
		what string
		in   [2][2]int // by rank: the elements of its blocks
		out  [2][2]int
		bad  bool
	}{
		{"even", [2][2]int{{3, 3}, {3, 3}}, [2][2]int{{3, 3}, {3, 3}}, false},
		{"uneven", [2][2]int{{1, 7}, {2, 5}}, [2][2]int{{1, 2}, {7, 5}}, false},
		{"even here, uneven there", [2][2]int{{3, 3}, {3, 90000}}, [2][2]int{{3, 3}, {3, 90000}}, false},
		{"several pieces of one rank", [2][2]int{{1, 2 << 20}, {1, 1}}, [2][2]int{{1, 1}, {2 << 20, 1}}, false},
		{"even and wrong", [2][2]int{{3, 3}, {3, 3}}, [2][2]int{{3, 3}, {4, 3}}, true},
		{"uneven and wrong", [2][2]int{{1, 7}, {2, 5}}, [2][2]int{{1, 2}, {6, 5}}, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			comms := join(t, "shm", 2, plans{dtype.AllToAll: catalogued("window")}.of)
			var group sync.WaitGroup
			errs := make([]error, 2)
			for rank, c := range comms {
				group.Go(func() {
					for turn := range 4 {
						call := exec.Call{Coll: dtype.AllToAll, Type: dtype.F32}
						var in, out [2][]float32
						for peer := range 2 {
							in[peer], out[peer] =
								vector(10*rank+peer, test.in[rank][peer], turn), make([]float32, test.out[rank][peer])
							call.In, call.Out = append(call.In, blockOf(in[peer])), append(call.Out, blockOf(out[peer]))
						}
						if errs[rank] = c.Run(&call); errs[rank] != nil {
							c.Close()
							return
						}
						for peer := range 2 {
							if want := vector(10*peer+rank, test.in[peer][rank], turn); len(want) == len(out[peer]) {
								for i := range want {
									if want[i] != out[peer][i] {
										t.Errorf("rank %d, from %d, element %d: %v, want %v",
											rank, peer, i, out[peer][i], want[i])
										return
									}
								}
							}
						}
					}
				})
			}
			group.Wait()
			if !test.bad {
				require.NoError(t, errs[0])
				require.NoError(t, errs[1])
				return
			}
			require.ErrorContains(t, errs[1], "the block from it has")
			require.Error(t, errs[0])
		})
	}
}

// TestKnownCallsAreNumbered checks that operations are counted in one sequence, in whatever way
// they run. The ranks need not run them in the same way.
func TestKnownCallsAreNumbered(t *testing.T) {
	comms := join(t, "inproc", 2, plans{dtype.AllReduce: catalogued("one_shot_window")}.of)
	each(t, 2, func(rank int) error {
		c, x := comms[rank], make([]float32, 4)
		for turn := range uint64(12) {
			if turn%4 == 3 || rank == 1 && turn%4 == 1 {
				op, err := c.Post(sumCall(x, x))
				if err != nil {
					return err
				}
				if op.Seq() != turn+1 {
					return fmt.Errorf("posted as number %d, want %d", op.Seq(), turn+1)
				}
				if err := op.Wait(nil); err != nil {
					return err
				}
				op.Free()
			} else if err := c.Run(sumCall(x, x)); err != nil {
				return err
			}
			if c.Seq() != turn+1 {
				return fmt.Errorf("%d operations, want %d", c.Seq(), turn+1)
			}
		}
		return nil
	})
	require.Equal(t, 1, exec.Programs(comms[0]))
}

// BenchmarkKnown measures what a kept program costs apart from waiting: the peer has always
// published its word.
func BenchmarkKnown(b *testing.B) {
	ops := []struct {
		name string
		plan string
		call func(rank int, x []float32) *exec.Call
	}{
		{"all_reduce", "one_shot_window", func(_ int, x []float32) *exec.Call { return sumCall(x, x) }},
		{"all_gather", "window", func(rank int, x []float32) *exec.Call {
			return &exec.Call{Coll: dtype.AllGather, Type: dtype.F32,
				In: []exec.Block{blockOf(x[2:3])}, Out: []exec.Block{blockOf(x[:1]), blockOf(x[1:2])}}
		}},
		{"broadcast_root", "window", func(rank int, x []float32) *exec.Call {
			call := &exec.Call{Coll: dtype.Broadcast, Type: dtype.F32, Out: []exec.Block{blockOf(x)}}
			if rank == 0 {
				call.In = call.Out
			}
			return call
		}},
	}
	for _, op := range ops {
		b.Run(op.name, func(b *testing.B) {
			comms := join(b, "inproc", 2, plans{op.call(0, make([]float32, 4)).Coll: catalogued(op.plan)}.of)
			each(b, 2, func(rank int) error {
				call := op.call(rank, make([]float32, 4))
				for range 4 {
					if err := comms[rank].Run(call); err != nil {
						return err
					}
				}
				return nil
			})
			call := op.call(0, make([]float32, 4))
			for b.Loop() {
				exec.Foretell(comms[0])
				if err := comms[0].Run(call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkShapes measures what operations of one shape, and of more shapes than are kept, cost all
// ranks together, without any waiting: one thread posts them on all ranks and drives each in turn.
func BenchmarkShapes(b *testing.B) {
	for _, name := range []string{"one_shot_window", "ring"} {
		for _, ranks := range []int{2, 8} {
			for _, shapes := range []int{1, 40} {
				b.Run(fmt.Sprintf("%s/%dranks/%d", name, ranks, shapes), func(b *testing.B) {
					comms := join(b, "inproc", ranks, plans{dtype.AllReduce: catalogued(name)}.of)
					x := make([][]float32, ranks)
					for rank := range x {
						x[rank] = make([]float32, 64)
					}
					ops := make([]*exec.Op, ranks)
					turn := 0
					for b.Loop() {
						turn = (turn + 1) % shapes
						for rank, c := range comms {
							op, err := c.Post(sumCall(x[rank][:1+turn], x[rank][:1+turn]))
							if err != nil {
								b.Fatal(err)
							}
							ops[rank] = op
						}
						for rank := 0; rank < ranks; {
							rank = 0
							for _, op := range ops {
								if done, err := op.Poll(); err != nil {
									b.Fatal(err)
								} else if done {
									rank++
								}
							}
						}
						for _, op := range ops {
							op.Free()
						}
					}
				})
			}
		}
	}
}
