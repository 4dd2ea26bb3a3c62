package kernel

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// ReduceFunc sets dst[i] = (src[0][i] ⊕ src[1][i]) ⊕ src[2][i] … for n elements, with the bits that
// the kernel of two operands gives when it is applied repeatedly from left to right. There is at
// least one source. dst may be the same memory as any source, or separate from all.
type ReduceFunc func(dst unsafe.Pointer, src []unsafe.Pointer, n int)

// Reduce returns the kernel for any number of operands, or nil where dtype.Reducible refuses. Avg
// and PremulSum have the kernel of Sum, as in For. The kernel reads each source once and writes dst
// once, instead of reading and writing the result so far for every source.
func Reduce(t dtype.Type, op dtype.Op) ReduceFunc {
	if t >= typeCount || op >= opCount {
		return nil
	}
	return reducers[t][op]
}

const (
	maxFold   = 8        // sources that one block of assembly takes
	tileBytes = 16 << 10 // of dst: these stay in the nearest cache between two passes
	// partBytes of dst stay in the next cache, and are long enough for the CPU to read ahead in the
	// sources.
	partBytes = 256 << 10
	foldBytes = 64 << 10 // bounds one call of assembly, in bytes of one of several operands
)

// foldBlock reduces n elements from a byte offset on. Its index in folds.blocks is the number of
// sources.
type foldBlock func(dst unsafe.Pointer, src *unsafe.Pointer, offset, n int)

// folds holds the blocks by number of sources, nil where there is none. n must be divisible by
// multiple, which is 0 without blocks.
type folds struct {
	blocks   [maxFold + 1]foldBlock
	multiple int
}

func reducer(t dtype.Type, op dtype.Op) ReduceFunc {
	unit, parts := dtype.Unit(t, op)
	r := newFolder(unit, op, bestISA)
	if parts == 1 {
		return r.reduce
	}
	return func(dst unsafe.Pointer, src []unsafe.Pointer, n int) { r.reduce(dst, src, n*parts) }
}

// folder reduces any number of sources of one type by one operator.
type folder struct {
	pair Func
	folds
	size int
}

func newFolder(t dtype.Type, op dtype.Op, with isa) *folder {
	f := &folder{pair: pairKernel(t, op, with), size: t.Size()}
	f.folds = vectorFold(t, plainOp(op), with)
	return f
}

func (f *folder) reduce(dst unsafe.Pointer, src []unsafe.Pointer, n int) {
	switch k := len(src); {
	case k == 2:
		f.pair(dst, src[0], src[1], n)
	case k > 2 && k <= maxFold && f.blocks[k] != nil:
		whole := n - n%f.multiple
		for at := 0; at < whole; at += foldBytes / f.size {
			runFold(f.blocks[k], dst, &src[0], at*f.size, min(foldBytes/f.size, whole-at))
		}
		if n > whole {
			f.inTiles(dst, src, whole, n-whole)
		}
	case k > 2:
		f.inTiles(dst, src, 0, n)
	case k == 1 && dst != src[0]:
		copyBytes(dst, src[0], n*f.size)
	}
}

// runFold is not inlined, so that it has a prologue, like preemptible.
//
//go:noinline
func runFold(f foldBlock, dst unsafe.Pointer, src *unsafe.Pointer, offset, n int) {
	f(dst, src, offset, n)
}

// inTiles reduces n elements from element first on, in several passes over parts that stay in a
// cache. It keeps the result so far in dst, unless dst is a source that is still to come.
func (f *folder) inTiles(dst unsafe.Pointer, src []unsafe.Pointer, first, n int) {
	s := takeScratch()
	apart, most := false, n
	if f.multiple > 0 {
		most = partBytes / f.size
	}
	for _, p := range src[2:] {
		if p == dst {
			apart, most = true, tileBytes/f.size
		}
	}
	for n > 0 {
		part := min(n, most)
		to := unsafe.Add(dst, first*f.size)
		soFar := to
		if apart {
			soFar = unsafe.Pointer(&s.tile)
		}
		f.reduceTile(s, to, soFar, src, first, part)
		first, n = first+part, n-part
	}
	s.release()
}

func (f *folder) reduceTile(s *scratch, dst, soFar unsafe.Pointer, src []unsafe.Pointer, first, n int) {
	at := first * f.size
	done := 0
	for done < len(src) {
		group := f.group(len(src)-done, done > 0, n)
		count := 0
		if done > 0 {
			s.group[0], count = soFar, 1
		}
		for _, p := range src[done : done+group-count] {
			s.group[count] = unsafe.Add(p, at)
			count++
			done++
		}
		to := soFar
		if done == len(src) {
			to = dst
		}
		if count == 2 {
			f.pair(to, s.group[0], s.group[1], n)
		} else {
			f.blocks[count](to, &s.group[0], 0, n)
		}
	}
}

// group returns how many operands the next pass takes, given the number of sources that remain. The
// result so far, if there is one, counts as an operand.
func (f *folder) group(remaining int, started bool, n int) int {
	if started {
		remaining++
	}
	if f.multiple > 0 && n%f.multiple == 0 {
		for k := min(remaining, maxFold); k > 2; k-- {
			if f.blocks[k] != nil {
				return k
			}
		}
	}
	return 2
}

// scratch is the memory that inTiles needs beyond its operands. It comes from a small fixed set,
// because a reduction must not allocate.
type scratch struct {
	taken atomic.Bool
	group [maxFold]unsafe.Pointer
	tile  [tileBytes / 8]uint64
}

var scratches [8]scratch

func takeScratch() *scratch {
	for i := range scratches {
		if s := &scratches[i]; s.taken.CompareAndSwap(false, true) {
			return s
		}
	}
	return new(scratch) // more reductions at once than there are scratches
}

func (s *scratch) release() {
	clear(s.group[:])
	s.taken.Store(false)
}
