package exec_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
)

// fixed is a planner that always takes one algorithm.
type fixed struct{ a algo.Algorithm }

func (f fixed) Choose(dtype.Collective, int, int64) int { return 0 }

func (f fixed) Make(_ int, spec plan.Spec) (*plan.Plan, error) { return f.a.Make(spec) }

// comms joins n ranks of this process over inproc; wrap may put something around each link.
func comms(t testing.TB, n int, planner exec.Planner) []*exec.Comm {
	bell := park.NewBell()
	fabric := inproc.New(bell)
	progress := exec.NewProgress(bell, nil)
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
					transport.Session{Rank: rank, Peer: peer, Channels: exec.Channels})
				if err != nil {
					panic(err)
				}
			})
		}
	}
	group.Wait()
	for rank := range n {
		var err error
		all[rank], err = exec.New(exec.Options{Name: "test", Rank: rank, Links: links[rank], Bell: bell, Planner: planner,
			Progress: progress, Timeout: time.Minute})
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

func each(t testing.TB, n int, run func(rank int) error) {
	t.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for rank := range n {
		group.Go(func() { errs[rank] = run(rank) })
	}
	group.Wait()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
	}
}

func block(x []float64) exec.Block {
	return exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x)}
}

// contribution of a rank to block b: whole numbers, so that sums are exact in any order.
func contribution(rank, b, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64((rank*31+b*17+i*7)%101 - 50)
	}
	return x
}

// buffers are a rank's blocks for a collective with blocks of n elements, and what Out must hold in the end.
func buffers(coll dtype.Collective, ranks, rank, root, n int, op dtype.Op, factor float64, inPlace bool) (in, out, want [][]float64) {
	reduced := func(b int) []float64 {
		sum := contribution(0, b, n)
		for r := 1; r < ranks; r++ {
			for i, v := range contribution(r, b, n) {
				switch op {
				case dtype.Max:
					sum[i] = max(sum[i], v)
				default:
					sum[i] += v
				}
			}
		}
		for i := range sum {
			switch op {
			case dtype.Avg:
				sum[i] /= float64(ranks)
			case dtype.PremulSum:
				sum[i] *= factor
			}
		}
		return sum
	}
	for b := range coll.InBlocks(ranks, rank, root) {
		in = append(in, contribution(rank, b, n))
	}
	for b := range coll.OutBlocks(ranks, rank, root) {
		out = append(out, make([]float64, n))
		switch coll {
		case dtype.Broadcast:
			want = append(want, contribution(root, 0, n))
		case dtype.Scatter:
			want = append(want, contribution(root, rank, n))
		case dtype.Gather, dtype.AllGather:
			want = append(want, contribution(b, 0, n))
		case dtype.AllToAll:
			want = append(want, contribution(b, rank, n))
		case dtype.ReduceScatter:
			want = append(want, reduced(rank))
		default:
			want = append(want, reduced(0))
		}
	}
	if inPlace && len(in) > 0 && len(out) > 0 {
		switch {
		case len(in) == len(out):
			out = in
		case len(in) == 1:
			copy(out[rank], in[0])
			in[0] = out[rank]
		default:
			out[0] = in[rank]
		}
	}
	return in, out, want
}

// Every algorithm of the catalogue gives the definition's result: any rank count, root, size, in place and not, scaled and not.
func TestCatalogue(t *testing.T) {
	sizes, counts := []int{1, 2, 3, 4, 7}, []int{0, 1, 5, 1000, 33_333}
	if testing.Short() {
		sizes, counts = []int{1, 2, 3}, []int{0, 5, 33_333}
	}
	for _, a := range algo.All() {
		for _, ranks := range sizes {
			t.Run(fmt.Sprintf("%v/%s/%d", a.Coll, a.Name, ranks), func(t *testing.T) {
				all := comms(t, ranks, fixed{a})
				roots := []int{0}
				if a.Coll.Rooted() {
					roots = []int{0, ranks - 1, ranks / 2}
				}
				p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks})
				require.NoError(t, err)
				ops := []dtype.Op{dtype.Sum}
				if a.Coll.Reduces() {
					ops = []dtype.Op{dtype.Sum, dtype.Avg, dtype.PremulSum, dtype.Max}
				}
				for _, root := range roots {
					for _, n := range counts {
						for _, op := range ops {
							for _, inPlace := range []bool{false, true} {
								if inPlace && p.Alias&plan.InPlace == 0 {
									continue
								}
								each(t, ranks, func(rank int) error {
									return once(all[rank], a.Coll, root, n, op, inPlace)
								})
							}
						}
					}
				}
			})
		}
	}
}

func once(c *exec.Comm, coll dtype.Collective, root, n int, op dtype.Op, inPlace bool) error {
	const factor = 0.5
	in, out, want := buffers(coll, c.Size(), c.Rank(), root, n, op, factor, inPlace)
	call := exec.Call{Coll: coll, Type: dtype.F64, Op: op, Root: root, Factor: factor}
	for _, x := range in {
		call.In = append(call.In, block(x))
	}
	for _, x := range out {
		call.Out = append(call.Out, block(x))
	}
	if err := c.Run(&call); err != nil {
		return err
	}
	for b := range want {
		for i := range want[b] {
			if d := out[b][i] - want[b][i]; d > 1e-12 || d < -1e-12 {
				return fmt.Errorf("%v of %d, root %d, %v, in place %v: block %d element %d is %v, want %v", coll, n, root, op, inPlace, b, i, out[b][i], want[b][i])
			}
		}
	}
	if !inPlace {
		for b, x := range in {
			for i, v := range contribution(c.Rank(), b, n) {
				if x[i] != v {
					return fmt.Errorf("%v of %d: input block %d was changed at %d", coll, n, b, i)
				}
			}
		}
	}
	return nil
}
