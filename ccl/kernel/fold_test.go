package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// wrongFold compares f with the loop in Go, applied from left to right, for k sources. dst is one
// of the sources or none.
func wrongFold(r *rand.Rand, f ReduceFunc, ty dtype.Type, op dtype.Op, k, n int) error {
	size := ty.Size()
	pieces, src := make([]guarded, k), make([]unsafe.Pointer, k)
	skew := size * r.IntN(64/size)
	for i := range pieces {
		if r.IntN(2) == 0 {
			skew = size * r.IntN(64/size)
		}
		pieces[i] = newGuarded(n*size, skew)
		fill(r, ty, pieces[i].data)
		src[i] = pieces[i].pointer()
	}
	if k > 2 && r.IntN(6) == 0 {
		pieces[k-1], src[k-1] = pieces[0], src[0]
	}
	want := newGuarded(n*size, 0)
	copy(want.data, pieces[0].data)
	for _, p := range src[1:] {
		genericReduction(ty, op)(want.pointer(), want.pointer(), p, n)
	}
	dst, is := newGuarded(n*size, size*r.IntN(64/size)), -1
	if r.IntN(2) == 0 {
		is = r.IntN(k)
		dst = pieces[is]
	}
	f(dst.pointer(), src, n)
	if at := mismatch(want.data, dst.data); at >= 0 {
		at -= at % size
		return fmt.Errorf("%v of %d × %v, dst is source %d, n %d, element %d: %#x, want %#x",
			op, k, ty, is, n, at/size, load(dst.data[at:], size), load(want.data[at:], size))
	}
	for _, g := range append(pieces, dst) {
		if err := g.broken(); err != nil {
			return err
		}
	}
	return nil
}

func TestFoldsEqualPairsFromLeftToRight(t *testing.T) {
	for _, ty := range realTypes() {
		for _, op := range slices.Concat(folded[ty], foldedToo[avx512fp16][ty], []dtype.Op{dtype.Max}) {
			for _, i := range isas() {
				f := newFolder(ty, op, i)
				r := rand.New(rand.NewPCG(uint64(ty), uint64(i)))
				rounds := 5
				if testing.Short() {
					rounds = 2
				}
				for _, k := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 19} {
					for range rounds {
						require.NoError(t, wrongFold(r, f.reduce, ty, op, k, r.IntN(150)))
					}
				}
				for _, k := range []int{3, 9} { // longer than a tile and than one call of assembly
					require.NoError(t, wrongFold(r, f.reduce, ty, op, k, (foldBytes+2*tileBytes)/ty.Size()+r.IntN(40)))
				}
			}
		}
	}
}

func TestReduceOfEveryPair(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, ty := range append(dtype.Types(), dtype.Invalid, 200) {
		for _, op := range append(dtype.Ops(), 200) {
			f := Reduce(ty, op)
			require.Equal(t, For(ty, op) != nil, f != nil, "%v of %v", op, ty)
			if f == nil {
				continue
			}
			unit, parts := dtype.Unit(ty, op)
			whole := func(dst unsafe.Pointer, src []unsafe.Pointer, n int) { f(dst, src, n/parts) }
			for k := 1; k <= 10; k++ {
				require.NoError(t, wrongFold(r, whole, unit, plainOp(op), k, parts*r.IntN(90)))
			}
		}
	}
	f := Reduce(dtype.I32, dtype.Max)
	require.NoError(t, wrongFold(r, f, dtype.I32, dtype.Max, 5, 3*tileBytes/4+11))
}

// More folds run at once than there are scratches.
func TestFoldsAtTheSameTime(t *testing.T) {
	failed := make(chan error, 3*len(scratches))
	for g := range uint64(cap(failed)) {
		go func() {
			r := rand.New(rand.NewPCG(g, 15))
			var err error
			for range 12 {
				err = errors.Join(err, wrongFold(r, Reduce(dtype.F32, dtype.Sum), dtype.F32, dtype.Sum,
					5+r.IntN(8), r.IntN(900)))
			}
			failed <- err
		}()
	}
	for range cap(failed) {
		require.NoError(t, <-failed)
	}
	for i := range scratches {
		require.False(t, scratches[i].taken.Load())
	}
}
