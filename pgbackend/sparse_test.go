package pgbackend

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// coo returns a tensor of F32 with one number at each place, in the given order.
func coo(sizes []int64, places []int64, values ...float32) SparseTensor {
	t := SparseTensor{Type: dtype.F32, Op: dtype.Sum, Sizes: sizes, SparseDims: len(sizes), Count: len(places)}
	t.Indices = t.indicesOf(places)
	for _, v := range values {
		t.Values = binary.LittleEndian.AppendUint32(t.Values, math.Float32bits(v))
	}
	return t
}

func floats(values []byte) []float32 {
	all := make([]float32, len(values)/4)
	for i := range all {
		all[i] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
	}
	return all
}

// reduced makes every rank reduce its tensor and returns the result or the error of each.
func reduced(t *testing.T, groups []*Group, tensors []SparseTensor) ([]elements, map[int]error) {
	t.Helper()
	results, ranks := make([]elements, len(groups)), make([]int, len(tensors))
	for r := range ranks {
		ranks[r] = r
	}
	return results, each(t, groups, ranks, func(g *Group) error {
		s, err := g.StartSparse(tensors[g.rank])
		if err != nil {
			return err
		}
		_, err = s.WaitSlice(0)
		_, results[g.rank].indices, results[g.rank].values = s.Result()
		return err
	})
}

func TestSparseSums(t *testing.T) {
	wide := []int64{2, 3}
	for name, c := range map[string]struct {
		tensors []SparseTensor
		indices []int64
		values  []float32
	}{
		"one rank":  {[]SparseTensor{coo([]int64{9}, []int64{7, 2}, 1, 2)}, []int64{2, 7}, []float32{2, 1}},
		"one twice": {[]SparseTensor{coo([]int64{9}, []int64{7, 2, 7}, 1, 2, 4)}, []int64{2, 7}, []float32{2, 5}},
		"apart": {
			[]SparseTensor{coo([]int64{9}, []int64{3}, 1), coo([]int64{9}, []int64{0, 8}, 2, 3)},
			[]int64{0, 3, 8}, []float32{2, 1, 3},
		},
		"at the same": {
			[]SparseTensor{coo([]int64{9}, []int64{3, 4}, 1, 1), coo([]int64{9}, []int64{4, 3}, 2, 3)},
			[]int64{3, 4}, []float32{4, 3},
		},
		"two dimensions": {
			[]SparseTensor{coo(wide, []int64{5, 1}, 1, 2), coo(wide, []int64{1, 3}, 3, 4)},
			[]int64{0, 1, 1, 1, 0, 2}, []float32{5, 4, 1},
		},
		"one is empty": {
			[]SparseTensor{coo(wide, nil), coo(wide, []int64{4}, 3), coo(wide, nil)}, []int64{1, 1}, []float32{3},
		},
		"all are empty": {[]SparseTensor{coo(wide, nil), coo(wide, nil)}, []int64{}, []float32{}},
		"no places":     {[]SparseTensor{coo([]int64{0}, nil), coo([]int64{0}, nil)}, []int64{}, []float32{}},
		"the ranks' order": {
			[]SparseTensor{
				coo([]int64{1}, []int64{0}, 1e8), coo([]int64{1}, []int64{0}, 1), coo([]int64{1}, []int64{0}, -1e8),
			},
			[]int64{0}, []float32{0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			results, errs := reduced(t, world(t, len(c.tensors), forever), c.tensors)
			for rank, r := range results {
				require.NoError(t, errs[rank])
				require.Equal(t, c.indices, r.indices)
				require.Equal(t, c.values, floats(r.values))
			}
		})
	}
}

// Dense blocks of every type: all ranks end with the same bits.
func TestSparseBlocks(t *testing.T) {
	const ranks, places, width = 3, 40, 5
	for _, typ := range dtype.Types() {
		for _, op := range []dtype.Op{dtype.Sum, dtype.Avg} {
			if op == dtype.Avg && dtype.Reducible(typ, dtype.Avg) != nil {
				continue
			}
			groups := world(t, ranks, forever)
			random := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
			tensors := make([]SparseTensor, ranks)
			for r := range tensors {
				at := make([]int64, 30)
				for i := range at {
					at[i] = random.Int64N(places)
				}
				tensors[r] = SparseTensor{
					Type: typ, Op: op, Sizes: []int64{places, width}, SparseDims: 1, Count: len(at), Indices: at,
					Values: make([]byte, len(at)*width*typ.Size()),
				}
				for i := range tensors[r].Values { // bytes 0 and 1: small numbers, and never NaN, in every type
					tensors[r].Values[i] = byte(random.IntN(2))
				}
			}
			results, errs := reduced(t, groups, tensors)
			for rank := range ranks {
				require.NoError(t, errs[rank], "%v %v", typ, op)
				require.Equal(t, results[0], results[rank], "%v %v: the same bits on all ranks", typ, op)
			}
			require.True(t, increasing(results[0].indices))
			require.Len(t, results[0].values, len(results[0].indices)*width*typ.Size())
		}
	}
}

func TestSparseMean(t *testing.T) {
	tensors := []SparseTensor{coo([]int64{4}, []int64{1, 2}, 4, 6), coo([]int64{4}, []int64{1}, 1)}
	for i := range tensors {
		tensors[i].Op = dtype.Avg
	}
	results, errs := reduced(t, world(t, 2, forever), tensors)
	require.NoError(t, errs[0])
	require.Equal(t, []float32{2.5, 3}, floats(results[1].values))
}

func TestRefusedSparse(t *testing.T) {
	g := world(t, 1, forever)[0]
	for name, c := range map[string]struct {
		change func(*SparseTensor)
		code   fault.Code
		text   string
	}{
		"operator": {func(s *SparseTensor) { s.Op = dtype.Max }, fault.NotSupported, "SUM and ReduceOp.AVG only"},
		"mean of ints": {
			func(s *SparseTensor) { s.Op, s.Type = dtype.Avg, dtype.I32 },
			fault.NotSupported, "avg is not defined for Int",
		},
		"mean of bools": {
			func(s *SparseTensor) { s.Op, s.Type = dtype.Avg, dtype.Bool },
			fault.NotSupported, "avg is not defined for Bool",
		},
		"type":        {func(s *SparseTensor) { s.Type = 99 }, fault.Invalid, "not an element type"},
		"dimensions":  {func(s *SparseTensor) { s.Sizes = make([]int64, 65) }, fault.NotSupported, "at most 64"},
		"sparse ones": {func(s *SparseTensor) { s.SparseDims = 3 }, fault.NotSupported, "3 of them sparse"},
		"places": {
			func(s *SparseTensor) { s.Sizes = []int64{1 << 40, 1 << 40} },
			fault.NotSupported, "more than 2^63 places",
		},
		"too few indices": {func(s *SparseTensor) { s.Indices = s.Indices[1:] }, fault.Invalid, "do not fit"},
		"too few values":  {func(s *SparseTensor) { s.Values = s.Values[1:] }, fault.Invalid, "do not fit"},
		"an index": {
			func(s *SparseTensor) { s.Indices[3] = 3 },
			fault.Invalid, "element 1 has index 3 in dimension 1, whose size is 3",
		},
		"below zero": {func(s *SparseTensor) { s.Indices[0] = -1 }, fault.Invalid, "element 0 has index -1"},
	} {
		t.Run(name, func(t *testing.T) {
			tensor := coo([]int64{2, 3}, []int64{1, 4}, 1, 2)
			c.change(&tensor)
			_, err := g.StartSparse(tensor)
			require.ErrorIs(t, err, c.code)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "rank 0 of 1: sparse_all_reduce of ")
		})
	}
	require.Zero(t, g.State().Seq, "nothing was called")
}

// Ranks whose tensors differ all get an error that says so, and the group goes on.
func TestSparseRanksThatDiffer(t *testing.T) {
	sizes := []int64{4, 6}
	for name, c := range map[string]struct {
		change func(*SparseTensor) // changes rank 2's tensor
		text   string
	}{
		"sizes": {
			func(s *SparseTensor) { s.Sizes = []int64{4, 7} },
			"rank 2 has Float of sizes [4, 7] with 2 sparse dimensions (sum);",
		},
		"type": {func(s *SparseTensor) { s.Type = dtype.I32 }, "rank 2 has Int of sizes [4, 6]"},
		"operator": {
			func(s *SparseTensor) { s.Op = dtype.Avg },
			"rank 2 has Float of sizes [4, 6] with 2 sparse dimensions (avg)",
		},
		"sparse dimensions": {
			func(s *SparseTensor) { s.SparseDims, s.Count, s.Indices, s.Values = 1, 0, nil, nil },
			"with 1 sparse dimensions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			groups := world(t, 3, forever)
			tensors := []SparseTensor{coo(sizes, []int64{7}, 1), coo(sizes, []int64{7}, 1), coo(sizes, []int64{7}, 1)}
			c.change(&tensors[2])
			_, errs := reduced(t, groups, tensors)
			for rank, err := range errs {
				require.ErrorIs(t, err, fault.Mismatch)
				require.ErrorContains(t, err, c.text)
				require.ErrorContains(t, err, fault.Label(t.Name(), rank, 3)+": sparse_all_reduce of ")
				require.ErrorContains(t, err, ", seq 1: mismatch: rank 0 has Float of sizes [4, 6]")
			}
			results, errs := reduced(t, groups,
				[]SparseTensor{coo(sizes, []int64{7}, 1), coo(sizes, []int64{7}, 1), coo(sizes, nil)})
			require.NoError(t, errs[2])
			require.Equal(t, []float32{2}, floats(results[2].values))
		})
	}
}

// Values that another process sends are checked against what is possible.
func TestSparseFactsThatCannotBe(t *testing.T) {
	good := facts{
		factType: int64(dtype.F32), factOp: int64(dtype.Sum), factSparseDims: 1,
		factDims: 1, factCount: 1, factSizes: 8,
	}
	for name, c := range map[string]struct {
		change func(*facts)
		text   string
	}{
		"too many elements": {
			func(f *facts) { f[factCount] = 1 << 50 },
			"(rank 1): it says that it has 1125899906842624 elements at 8 places",
		},
		"less than none": {func(f *facts) { f[factCount] = -1 }, "it says that it has -1 elements"},
		"dimensions":     {func(f *facts) { f[factDims] = 1 << 40 }, "rank 1 has Float of sizes [8, 0,"},
		"type":           {func(f *facts) { f[factType] = -5 }, "rank 1 has type -5"},
	} {
		t.Run(name, func(t *testing.T) {
			groups := world(t, 2, forever)
			theirs, all := good, make([]facts, 2)
			c.change(&theirs)
			w, err := groups[1].Start(&ccl.Call{Coll: dtype.AllGather, Type: dtype.I64, In: blockOfInts(theirs[:]),
				Out: []ccl.Block{blockOfInts(all[0][:])[0], blockOfInts(all[1][:])[0]}})
			require.NoError(t, err)
			s, err := groups[0].StartSparse(coo([]int64{8}, []int64{1}, 1))
			require.NoError(t, err)
			_, err = s.WaitSlice(0)
			require.ErrorIs(t, err, fault.Mismatch)
			require.ErrorContains(t, err, c.text)
			require.NoError(t, wait(w))
		})
	}
}

func TestSparseWithoutARank(t *testing.T) {
	const short = 100 * time.Millisecond
	for name, c := range map[string]struct {
		timeout time.Duration // of the operation
		peer    func(*Group) error
		code    fault.Code
	}{
		"its own timeout":  {short, nil, fault.Timeout},
		"a rank that left": {0, (*Group).Close, fault.PeerLeft},
		"an abort":         {0, nil, fault.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			groups := world(t, 3, forever)
			tensor := coo([]int64{4}, []int64{1}, 1)
			tensor.Timeout = c.timeout
			var begun [2]*Sparse
			for rank := range begun {
				var err error
				begun[rank], err = groups[rank].StartSparse(tensor)
				require.NoError(t, err)
			}
			if c.peer != nil {
				require.NoError(t, c.peer(groups[2]))
			}
			if c.code == fault.Aborted {
				require.NoError(t, groups[0].Abort("for a test"))
			}
			_, err := begun[0].WaitSlice(0)
			require.ErrorIs(t, err, c.code)
			require.True(t, strings.HasPrefix(err.Error(), "goccl: group "+fault.Label(t.Name(), 0, 3)+
				": sparse_all_reduce of Float [4], seq 1: "), err)
			ended, again := begun[0].Done()
			require.True(t, ended)
			require.Equal(t, err, again)
			require.NoError(t, groups[1].Abort("it waits for rank 2 alone"))
			_, err = begun[1].WaitSlice(0)
			require.Error(t, err)
		})
	}
}

// A wait that runs out changes nothing.
func TestSparseOutlastsAWait(t *testing.T) {
	groups := world(t, 2, forever)
	first, err := groups[0].StartSparse(coo([]int64{4}, []int64{1}, 1))
	require.NoError(t, err)
	done, err := first.WaitSlice(10 * time.Millisecond)
	require.False(t, done)
	require.NoError(t, err)
	err = first.Unended()
	require.ErrorIs(t, err, fault.Timeout)
	require.ErrorContains(t, err, "sparse_all_reduce of Float [4], seq 1: timeout: the time of this wait is over")
	second, err := groups[1].StartSparse(coo([]int64{4}, []int64{2}, 1))
	require.NoError(t, err)
	for _, s := range []*Sparse{first, second} {
		_, err = s.WaitSlice(0)
		require.NoError(t, err)
		count, _, _ := s.Result()
		require.Equal(t, 2, count)
	}
	require.Nil(t, groups[0].comm.Load().Failure())
}

// The call does not wait, other operations may be issued before it has ended, and Drain waits for
// both phases.
func TestSparseWithOthers(t *testing.T) {
	groups := world(t, 2, forever)
	begin := func(g *Group) []*Sparse {
		var all []*Sparse
		for n := range 3 {
			s, err := g.StartSparse(coo([]int64{4}, []int64{int64(n)}, float32(g.rank+1)))
			require.NoError(t, err)
			all = append(all, s)
		}
		return all
	}
	first := begin(groups[0])
	ended, _ := first[0].Done()
	require.False(t, ended)
	require.False(t, groups[0].Drain(10*time.Millisecond))
	barrier := start(t, groups[0], ccl.Call{Coll: dtype.Barrier})
	second := begin(groups[1])
	require.NoError(t, wait(barrier, start(t, groups[1], ccl.Call{Coll: dtype.Barrier})))
	for _, g := range groups {
		for !g.Drain(forever) {
		}
	}
	for n, s := range append(first, second...) {
		ended, err := s.Done()
		require.True(t, ended)
		require.NoError(t, err)
		require.EqualValues(t, n%3+1, s.Seq())
		_, _, values := s.Result()
		require.Equal(t, []float32{3}, floats(values))
	}
}
