package exec_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/algo/algotest"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/plan/reference"
)

var everywhere = flag.Bool("catalogue.full", false, "every algorithm over every transport, every composition")

// catalogue is a planner that makes the plans of subject now of all. In runTrials each rank has its
// own catalogue, and sets now before its calls.
type catalogue struct {
	all []algotest.Subject
	now int
}

func (c *catalogue) Choose(coll dtype.Collective, _ int64) int {
	if c.all[c.now].Coll == coll {
		return c.now
	}
	// The exchange of lengths: any all_gather will do.
	return slices.IndexFunc(c.all, func(s algotest.Subject) bool { return s.Coll == coll })
}

func (c *catalogue) Make(i int, spec plan.Spec) (*plan.Plan, error) {
	spec.Shape = c.all[i].Shape
	return c.all[i].Make(spec)
}

// trial is one call of one subject: the input of every rank, and the result that the rank must get.
type trial[T reference.Number] struct {
	subject int
	coll    dtype.Collective
	typ     dtype.Type
	op      dtype.Op
	root    int
	inPlace bool
	what    string
	in      [][][]T // by rank and block
	want    [][][]T
}

const premultiplied = 0.5

// blockLength returns the length of a block of a trial. All blocks have n elements or, if uneven is
// set and the collective permits it, very different numbers of elements, some none.
func blockLength(coll dtype.Collective, n int, uneven bool, e plan.Extent) int {
	if !uneven || n == 0 {
		return n
	}
	switch coll {
	case dtype.AllToAll:
		return (e.From*5 + e.To*3) % 4 * n / 2
	case dtype.AllGather, dtype.Gather, dtype.Scatter, dtype.ReduceScatter:
		return (e.From + 2) % 3 * n
	}
	return n
}

// newTrial makes the input of a trial and evaluates the plan. If random is nil, the input is whole
// numbers.
func newTrial[T reference.Number](t *testing.T, subjects []algotest.Subject, i, ranks, root, n int, uneven bool,
	typ dtype.Type, op dtype.Op, random *rand.Rand) trial[T] {
	s := subjects[i]
	p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Root: root, Shape: s.Shape})
	require.NoError(t, err)
	tr := trial[T]{subject: i, coll: s.Coll, typ: typ, op: op, root: root}
	tr.what = fmt.Sprintf("%v/%s %v on %d ranks, root %d, %d elements (uneven %v) of %v, %v",
		s.Coll, s.Name, s.Shape, ranks, root, n, uneven, typ, op)
	length := func(e plan.Extent) int { return blockLength(s.Coll, n, uneven, e) }
	for rank := range ranks {
		var blocks [][]T
		for b := range s.Coll.InBlocks(ranks, rank, root) {
			x := make([]T, length(p.Spec.Extent(1, rank, plan.In, b)))
			for k := range x {
				if random == nil {
					x[k] = T((rank*31+b*17+k*7)%101 - 50)
				} else {
					x[k] = T(random.NormFloat64())
				}
			}
			blocks = append(blocks, x)
		}
		tr.in = append(tr.in, blocks)
	}
	if tr.want, err = reference.Run(p, op, premultiplied, tr.in, length); err != nil {
		require.NoError(t, err, tr.what)
	}
	if random == nil {
		tr.checkDefinition(t, ranks)
	}
	return tr
}

// checkDefinition compares the result of the plan with the definition of the collective, for whole
// numbers, for which every order of a reduction gives the same result. Only the mean is rounded.
func (tr *trial[T]) checkDefinition(t *testing.T, ranks int) {
	for rank, blocks := range tr.want {
		for b, got := range blocks {
			for k := range got {
				var want T
				switch tr.coll {
				case dtype.Broadcast:
					want = tr.in[tr.root][0][k]
				case dtype.Scatter:
					want = tr.in[tr.root][rank][k]
				case dtype.Gather, dtype.AllGather:
					want = tr.in[b][0][k]
				case dtype.AllToAll:
					want = tr.in[b][rank][k]
				default:
					block := 0
					if tr.coll == dtype.ReduceScatter {
						block = rank
					}
					want = tr.in[0][block][k]
					for r := 1; r < ranks; r++ {
						if x := tr.in[r][block][k]; tr.op == dtype.Max {
							want = max(want, x)
						} else {
							want += x
						}
					}
					switch tr.op {
					case dtype.Avg:
						want = T(float64(want) * (1 / float64(ranks)))
					case dtype.PremulSum:
						want = T(float64(want) * premultiplied)
					}
				}
				if got[k] != want {
					t.Fatalf("%s: rank %d, block %d, element %d is %v, want %v", tr.what, rank, b, k, got[k], want)
				}
			}
		}
	}
}

// run makes the call of one rank and compares the result bit by bit.
func (tr *trial[T]) run(c *exec.Comm) error {
	rank := c.Rank()
	call := exec.Call{Coll: tr.coll, Type: tr.typ, Op: tr.op, Root: tr.root, Factor: premultiplied}
	in, out := make([][]T, len(tr.in[rank])), make([][]T, len(tr.want[rank]))
	for b := range in {
		in[b] = append(roomFor[T](len(tr.in[rank][b]))[:0], tr.in[rank][b]...)
	}
	for b := range out {
		out[b] = roomFor[T](len(tr.want[rank][b]))
	}
	if tr.inPlace && len(in) > 0 && len(out) > 0 {
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
	for _, x := range in {
		call.In = append(call.In, blockOf(x))
	}
	for _, x := range out {
		call.Out = append(call.Out, blockOf(x))
	}
	if err := c.Run(&call); err != nil {
		return fmt.Errorf("%s (in place %v): %w", tr.what, tr.inPlace, err)
	}
	for b, want := range tr.want[rank] {
		for k := range want {
			if bits(out[b][k]) != bits(want[k]) {
				return fmt.Errorf("%s (in place %v): block %d, element %d is %v, want %v",
					tr.what, tr.inPlace, b, k, out[b][k], want[k])
			}
		}
	}
	if !tr.inPlace {
		for b, x := range in {
			if !slices.Equal(x, tr.in[rank][b]) {
				return fmt.Errorf("%s: input block %d was changed", tr.what, b)
			}
		}
	}
	return nil
}

// roomFor returns memory for n elements, with room for four more after them. The kernels convert
// pointers to arrays of four elements, even where no whole array is left, and the pointer checks of
// the race detector check the end of the first array.
func roomFor[T reference.Number](n int) []T { return make([]T, n, n+4) }

func bits[T reference.Number](x T) uint64 {
	if f, ok := any(x).(float32); ok {
		return uint64(math.Float32bits(f))
	}
	return uint64(x)
}

type runner interface{ run(c *exec.Comm) error }

// trials returns the calls for a group of the given number of ranks, and the subject of each call.
// large is the number of elements of a message of several fragments.
func trials(t *testing.T, all []algotest.Subject, ranks int, large int) (list []runner, at []int) {
	random := rand.New(rand.NewSource(int64(ranks)))
	add := func(i int, r ...runner) {
		for _, each := range r {
			list, at = append(list, each), append(at, i)
		}
	}
	for i, s := range all {
		p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape})
		require.NoError(t, err)
		places := []bool{false}
		if p.Alias&plan.InPlace != 0 {
			places = append(places, true)
		}
		roots := []int{0}
		if s.Coll.Rooted() && ranks > 1 {
			roots = []int{0, ranks - 1}
		}
		uneven := map[dtype.Collective]bool{
			dtype.AllToAll: true, dtype.AllGather: true, dtype.Gather: true, dtype.Scatter: true,
			dtype.ReduceScatter: true,
		}[s.Coll]
		for _, root := range roots {
			for _, inPlace := range places {
				floats := func(n int, uneven bool, op dtype.Op, random *rand.Rand) {
					tr := newTrial[float32](t, all, i, ranks, root, n, uneven, dtype.F32, op, random)
					tr.inPlace = inPlace
					add(i, &tr)
				}
				floats(0, false, dtype.Sum, nil)
				floats(13, false, dtype.Sum, random)
				if s.Gets && s.Coll.Reduces() && s.Level < 4 {
					// It runs in pieces; the order of a sum may depend on the place in the piece.
					tr := newTrial[int32](t, all, i, ranks, root, large, false, dtype.I32, dtype.Sum, nil)
					tr.inPlace = inPlace
					add(i, &tr)
				} else {
					floats(large, false, dtype.Sum, random)
				}
				if uneven {
					floats(9, true, dtype.Sum, random)
				}
				if !s.Coll.Reduces() {
					continue
				}
				for _, op := range []dtype.Op{dtype.Avg, dtype.PremulSum, dtype.Max} {
					floats(13, false, op, nil)
					floats(13, uneven, op, random)
				}
				a := newTrial[int32](t, all, i, ranks, root, 13, false, dtype.I32, dtype.Sum, nil)
				b := newTrial[int64](t, all, i, ranks, root, 1, uneven, dtype.I64, dtype.Max, nil)
				a.inPlace, b.inPlace = inPlace, inPlace
				add(i, &a, &b)
			}
		}
	}
	return list, at
}

// TestCatalogue runs every algorithm of the catalogue on every transport. The results must have the
// same bits as those that the reference computes from the plan, which for whole numbers agree with
// the definition of the collective. The ranks of a group run all calls one after another, and wait
// for each other only as the calls do. More than three ranks take one transport, in a full run all.
func TestCatalogue(t *testing.T) {
	counts := []int{1, 2, 3, 4, 5, 6, 8}
	if testing.Short() || underRace {
		counts = []int{1, 3, 4}
	}
	for _, ranks := range counts {
		large, names := 40_003, []string{"inproc", "shm", "tcp"}
		if ranks > 3 && !*everywhere || ranks == 8 || testing.Short() || underRace {
			large = 2_003
			switch ranks {
			case 3:
				names = names[1:]
			case 4, 5:
				names = names[ranks-3:][:1]
			default:
				names = names[:1]
			}
		}
		all, skipped := algotest.Subjects(ranks)
		for _, why := range skipped {
			t.Logf("left out: %s", why)
		}
		list, at := trials(t, all, ranks, large)
		for _, name := range names {
			t.Run(fmt.Sprintf("%s/%d", name, ranks), func(t *testing.T) {
				runTrials(t, name, ranks, all, list, at, nil)
			})
		}
	}
}

// runTrials has every rank of a group make all calls. Each rank calls before, if it is not nil,
// ahead of call i.
func runTrials(t *testing.T, name string, ranks int, all []algotest.Subject, list []runner, at []int,
	before func(i, rank int)) {
	planners := make([]*catalogue, ranks)
	comms := join(t, name, ranks, func(rank int) exec.Planner {
		planners[rank] = &catalogue{all: all}
		return planners[rank]
	})
	errs := make([]error, ranks)
	var group sync.WaitGroup
	for rank := range ranks {
		group.Go(func() {
			for i := range list {
				if name == "tcp" && all[at[i]].Gets {
					continue
				}
				if planners[rank].now != at[i] {
					planners[rank].now = at[i]
					exec.Forget(comms[rank])
				}
				if before != nil {
					before(i, rank)
				}
				times := 1
				if all[at[i]].Gets {
					times = 3 // the third call runs a kept program
				}
				for range times {
					if errs[rank] = list[i].run(comms[rank]); errs[rank] != nil {
						comms[rank].Close() // so that the other ranks do not wait
						return
					}
				}
			}
		})
	}
	group.Wait()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
	}
	t.Logf("%d algorithms, %d calls", len(all), len(list))
}

// TestComposed runs every hierarchical algorithm of two and of three levels, with each choice of an
// algorithm for each level; of three levels every third choice, in a full run all.
func TestComposed(t *testing.T) {
	shapes := []plan.Shape{{2, 3}, {3, 2}, {2, 2, 2}}
	if testing.Short() || underRace {
		shapes = []plan.Shape{{2, 2}}
	}
	for _, shape := range shapes {
		ranks, levels := 1, 0
		for ; levels < len(shape) && shape[levels] > 0; levels++ {
			ranks *= shape[levels]
		}
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			// One all_gather for the exchange of lengths.
			gather, err := algo.Find(dtype.AllGather, "direct")
			require.NoError(t, err)
			all := []algotest.Subject{{Algorithm: gather}}
			for _, coll := range dtype.Collectives() {
				for k, a := range algo.Variants(coll, levels) {
					if levels == 3 && k%3 != 0 && !*everywhere {
						continue
					}
					all = append(all, algotest.Subject{Algorithm: a, Shape: shape})
				}
			}
			random := rand.New(rand.NewSource(7))
			var list []runner
			var at []int
			for i, s := range all {
				p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape})
				require.NoError(t, err)
				uneven := s.Coll != dtype.AllReduce
				tr := newTrial[float32](t, all, i, ranks, 0, 29, uneven, dtype.F32, dtype.Sum, random)
				whole := newTrial[int32](t, all, i, ranks, 0, 29, false, dtype.I32, dtype.Sum, nil)
				whole.inPlace = p.Alias&plan.InPlace != 0
				list, at = append(list, &tr, &whole), append(at, i, i)
			}
			runTrials(t, "inproc", ranks, all, list, at, nil)
		})
	}
}
