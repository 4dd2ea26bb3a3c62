package ccl_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

// floats returns n elements of registered memory. The first lies shift elements behind the
// beginning of the allocation.
func floats(t testing.TB, node *ccl.Node, n, shift int) []float32 {
	memory, err := node.Alloc(4 * (n + shift))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Free(memory)) })
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(memory))), n+shift)[shift:]
}

func block(x []float32) exec.Block {
	return exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x)}
}

// lentCall returns a call of a collective over buffers with blocks of n elements. In place, Out is
// where In is.
func lentCall(coll dtype.Collective, rank, ranks, n int, inPlace bool, in, out []float32) *exec.Call {
	call := &exec.Call{Coll: coll, Type: dtype.F32, Root: ranks - 1}
	blocks := func(x []float32, count int) []exec.Block {
		var all []exec.Block
		for i := range count {
			all = append(all, block(x[i*n:(i+1)*n]))
		}
		return all
	}
	call.In = blocks(in, coll.InBlocks(ranks, rank, call.Root))
	call.Out = blocks(out, coll.OutBlocks(ranks, rank, call.Root))
	if !inPlace || len(call.In) == 0 || len(call.Out) == 0 {
		return call
	}
	switch {
	case len(call.In) == len(call.Out):
		call.Out = call.In
	case len(call.In) == 1:
		copy(out[rank*n:(rank+1)*n], in[:n])
		call.In = call.Out[rank : rank+1]
	default:
		call.Out = call.In[rank : rank+1]
	}
	return call
}

// written returns a copy of what a call has written.
func written(call *exec.Call) (all []float32) {
	for _, b := range call.Out {
		all = append(all, unsafe.Slice((*float32)(b.Ptr), b.Count)...)
	}
	return all
}

// operands returns, for each rank, registered memory of n elements for inputs, which begins
// within a page, and for outputs, and what to put into inputs.
func operands(t *testing.T, all []*ccl.Node, most int) (registered [][2][]float32, given [][]float32) {
	const shift = 3
	for r, node := range all {
		random := rand.New(rand.NewPCG(uint64(r), 1))
		numbers := make([]float32, most)
		for i := range numbers {
			numbers[i] = random.Float32() - 0.5
		}
		given = append(given, numbers)
		registered = append(registered, [2][]float32{floats(t, node, most, shift), floats(t, node, most, 0)})
	}
	return registered, given
}

// Each rank that has registered memory lends it, at any offset; the others copy. The results have
// the same bits as without, also where programs were kept before and where an operation has several
// pieces.
func TestRegistered(t *testing.T) {
	lenders := []dtype.Collective{
		dtype.AllGather, dtype.AllReduce, dtype.ReduceScatter, dtype.AllToAll, dtype.Broadcast, dtype.Reduce,
	}
	colls := append(slices.Clone(lenders), dtype.Gather, dtype.Scatter)
	sizes, groups := []int{5, 70_000, 350_001}, []int{2, 3}
	opts := ccl.GroupOptions{Transport: "shm", Algo: "broadcast=window,reduce=window"}
	if testing.Short() {
		colls, sizes, groups, opts.BuffSize = lenders, []int{90_001}, []int{2}, 512<<10
	}
	for _, ranks := range groups {
		all := nodesFor(t, ranks, opts.Transport)
		comms := join(t, all, opts, "test")
		most := slices.Max(sizes) * ranks
		registered, given := operands(t, all, most)
		for _, coll := range colls {
			lends := slices.Contains(lenders, coll)
			for _, n := range sizes {
				for _, inPlace := range []bool{false, true} {
					if inPlace && coll == dtype.AllToAll {
						continue
					}
					var want [][]float32
					for _, who := range []string{"none", "none", "none", "all", "first", "last", "input"} {
						name := fmt.Sprintf("%v, %d ranks, %d elements, in place %v, registered: %s",
							coll, ranks, n, inPlace, who)
						got := make([][]float32, ranks)
						before := comms[0].Exposed()
						each(t, ranks, func(rank int) error {
							in, out := make([]float32, n*ranks), make([]float32, n*ranks)
							if who == "all" || who == "first" && rank == 0 || who == "last" && rank == ranks-1 ||
								who == "input" {
								in = registered[rank][0][:n*ranks]
							}
							if who == "all" || who == "first" && rank == 0 || who == "last" && rank == ranks-1 {
								out = registered[rank][1][:n*ranks]
							}
							copy(in, given[rank])
							clear(out)
							kept := slices.Clone(in)
							call := lentCall(coll, rank, ranks, n, inPlace, in, out)
							if err := comms[rank].Do(background, call); err != nil {
								return fmt.Errorf("%s: %w", name, err)
							}
							got[rank] = written(call)
							if !inPlace && !slices.Equal(in, kept) {
								return fmt.Errorf("%s: the input has changed", name)
							}
							clear(in) // the operation is over, for the peers too
							clear(out)
							return nil
						})
						if want == nil {
							want = got
						}
						for r := range want {
							require.True(t, slices.Equal(want[r], got[r]), "%s: rank %d", name, r)
						}
						least := 8 << 10
						if coll == dtype.AllReduce {
							least = 160 << 10
						}
						// A broadcast is lent by the root, which is another rank.
						expected := lends && n >= least && coll != dtype.Broadcast &&
							(who == "all" || who == "first" || who == "input" && !(inPlace && coll == dtype.AllGather))
						require.Equal(t, expected, comms[0].Exposed() > before, name)
					}
				}
			}
		}
	}
}

// PREMUL_SUM multiplies the data that goes into a window, so that nothing is lent; AVG is divided
// once.
func TestRegisteredFactors(t *testing.T) {
	opts := ccl.GroupOptions{Transport: "shm"}
	all := nodesFor(t, 2, opts.Transport)
	comms := join(t, all, opts, "test")
	const n = 200_000
	for _, op := range []dtype.Op{dtype.PremulSum, dtype.Avg} {
		for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.ReduceScatter} {
			each(t, 2, func(rank int) error {
				in, out := floats(t, all[rank], 2*n, 0), floats(t, all[rank], 2*n, 0)
				for i := range in {
					in[i] = float32(rank*2 + 1)
				}
				call := lentCall(coll, rank, 2, n, false, in, out)
				call.Op, call.Factor = op, 3
				if err := comms[rank].Do(background, call); err != nil {
					return err
				}
				want := float32(map[dtype.Op]int{dtype.PremulSum: 12, dtype.Avg: 2}[op])
				if i := slices.IndexFunc(out[:n], func(x float32) bool { return x != want }); i >= 0 {
					return fmt.Errorf("%v %v: element %d is %v, want %v", coll, op, i, out[i], want)
				}
				return nil
			})
		}
	}
	require.EqualValues(t, 2, comms[0].Exposed())
}

// Ranks of one process lend, too. If a process has no registered memory no rank lends to it, and
// everything works.
func TestRegisteredHereAndThere(t *testing.T) {
	const n = 300_000
	run := func(t *testing.T, nodes []*ccl.Node, comms []*ccl.Communicator, lends bool) {
		each(t, 2, func(rank int) error {
			x := make([]float32, n)
			if node := nodes[rank%len(nodes)]; rank == 0 || lends {
				x = floats(t, node, n, 0)
			}
			for turn := range 3 {
				for i := range x {
					x[i] = float32(i%1000 + rank)
				}
				if err := ccl.AllReduce(background, comms[rank], x, x, ccl.Sum); err != nil {
					return err
				}
				for i := range x {
					if x[i] != float32(i%1000*2+1) {
						return fmt.Errorf("turn %d: element %d is %v", turn, i, x[i])
					}
				}
			}
			return nil
		})
		require.Equal(t, lends, comms[0].Exposed() == 3, "lent %d", comms[0].Exposed())
	}
	t.Run("inproc", func(t *testing.T) {
		node, comms, err := ccl.Local(background, 2, ccl.GroupOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { node.Close() })
		run(t, []*ccl.Node{node}, comms, true)
	})
	t.Run("off on one side", func(t *testing.T) {
		a := nodesFor(t, 1, "shm")
		b := nodes(t, 1, ccl.NodeOptions{Registered: -1})
		both := []*ccl.Node{a[0], b[0]}
		_, err := b[0].Alloc(100)
		require.ErrorIs(t, err, fault.NotSupported)
		run(t, both, join(t, both, ccl.GroupOptions{Transport: "shm"}, "test"), false)
	})
	t.Run("freed while mapped", func(t *testing.T) {
		both := nodes(t, 2, ccl.NodeOptions{Registered: 16 << 20})
		comms := join(t, both, ccl.GroupOptions{Transport: "shm"}, "test")
		for range 5 { // more than there is room for, unless freed memory is used again
			t.Run("", func(t *testing.T) {
				each(t, 2, func(rank int) error {
					x := floats(t, both[rank], 2<<20, 0)
					x[0], x[2<<20-1] = 1, 2
					return ccl.AllReduce(background, comms[rank], x, x, ccl.Sum)
				})
			})
		}
		require.EqualValues(t, 5, comms[0].Exposed())
		_, err := both[0].Alloc(32 << 20)
		require.ErrorIs(t, err, fault.Invalid)
		for _, bad := range []string{"1", "x", "-1", "2000G"} {
			_, err := ccl.ParseOptions("GOCCL_REGISTERED=" + bad)
			require.ErrorContains(t, err, "GOCCL_REGISTERED", bad)
		}
	})
}
