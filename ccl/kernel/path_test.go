package kernel

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// codeOf identifies a function, to prove which path was chosen.
func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// kernelOf identifies a kernel in assembly: all of them have the same code, each a block of its
// own.
func kernelOf[F Func | ScaleFunc | SumScaleFunc](f F) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&f))
}

// realTypes returns the types that have kernels of their own.
func realTypes() []dtype.Type {
	var all []dtype.Type
	for _, t := range dtype.Types() {
		if real, _ := dtype.Real(t); real == t && dtype.Reducible(t, dtype.Sum) == nil {
			all = append(all, t)
		}
	}
	return all
}

func TestTheBestPathIsChosen(t *testing.T) {
	if !haveAssembly {
		require.Equal(t, noISA, bestISA)
	}
	for _, ty := range realTypes() {
		for _, op := range dtype.Ops() {
			if dtype.Reducible(ty, op) != nil {
				continue
			}
			if want := vectorReduction(ty, plainOp(op), bestISA); want != nil {
				require.Equal(t, kernelOf(want), kernelOf(For(ty, op)), "%v of %v", op, ty)
			} else {
				require.Equal(t, codeOf(pairWith(ty, plainOp(op), noISA)), codeOf(For(ty, op)), "%v of %v", op, ty)
			}
		}
	}
	for ty := range formats {
		if want := vectorScaling(ty, bestISA); want != nil {
			require.Equal(t, kernelOf(want), kernelOf(Scale(ty)), "scale of %v", ty)
		} else if bestISA == noISA {
			require.Equal(t, codeOf(genericScaling(ty)), codeOf(Scale(ty)), "scale of %v", ty)
		}
		if want := vectorSumScaling(ty, bestISA); want != nil {
			require.Equal(t, kernelOf(want), kernelOf(SumScale(ty)), "sum and scale of %v", ty)
		}
	}
	t.Logf("kernels run by %v", bestISA)
}

// fewerPairs lists the pairs for which an instruction set has kernels, where it does not have all
// of them.
var fewerPairs = map[isa]map[dtype.Type][]dtype.Op{
	neon: {dtype.F32: {dtype.Sum}, dtype.BF16: {dtype.Sum}},
}

// folded lists the pairs that have kernels of many operands; foldedToo lists those that one
// instruction set has in addition.
var folded = map[dtype.Type][]dtype.Op{
	dtype.F32: {dtype.Sum, dtype.Prod, dtype.Min, dtype.Max}, dtype.F64: {dtype.Sum},
	dtype.BF16: {dtype.Sum, dtype.Prod},
	dtype.I8:   {dtype.Sum}, dtype.U8: {dtype.Sum}, dtype.I16: {dtype.Sum}, dtype.U16: {dtype.Sum},
	dtype.I32: {dtype.Sum}, dtype.U32: {dtype.Sum}, dtype.I64: {dtype.Sum}, dtype.U64: {dtype.Sum},
}

var foldedToo = map[isa]map[dtype.Type][]dtype.Op{avx512fp16: {dtype.F16: {dtype.Sum}}}

func TestEveryInstructionSetHasKernelsOfItsOwn(t *testing.T) {
	for _, i := range machineISAs {
		for _, ty := range realTypes() {
			for _, op := range dtype.Ops() {
				if dtype.Reducible(ty, op) != nil || plainOp(op) != op {
					continue
				}
				own := true
				if pairs, fewer := fewerPairs[i]; fewer {
					own = false
					for _, o := range pairs[ty] {
						own = own || o == op
					}
				}
				f := vectorReduction(ty, op, i)
				require.Equal(t, own, f != nil, "%v of %v by %v", op, ty, i)
				if own {
					require.NotEqual(t, codeOf(pairWith(ty, op, noISA)), codeOf(f), "%v of %v by %v", op, ty, i)
				}
			}
		}
		if _, fewer := fewerPairs[i]; fewer {
			continue
		}
		for ty := range formats {
			require.Equal(t, !ty.Float8(), vectorScaling(ty, i) != nil, "%v by %v", ty, i)
			require.Equal(t, ty.Size() > 2, vectorSumScaling(ty, i) != nil, "%v by %v", ty, i)
		}
		for _, ty := range realTypes() {
			for _, op := range dtype.Ops() {
				own := slices.Contains(folded[ty], op) || slices.Contains(foldedToo[i][ty], op)
				for _, k := range []int{3, 4, 8} {
					require.Equal(t, own, vectorFold(ty, op, i).blocks[k] != nil, "%v of %d × %v by %v", op, k, ty, i)
				}
			}
		}
		require.NotNil(t, vectorCopy(i))
	}
}

func TestKernelsDoNotAllocate(t *testing.T) {
	const n = 300
	a, b, dst := newGuarded(16*n, 0), newGuarded(16*n, 0), newGuarded(16*n, 0)
	src := make([]unsafe.Pointer, 13)
	for i := range src {
		src[i] = a.pointer()
	}
	for _, ty := range dtype.Types() {
		for _, op := range dtype.Ops() {
			if dtype.Reducible(ty, op) != nil {
				continue
			}
			require.Zero(t, testing.AllocsPerRun(3, func() {
				For(ty, op)(dst.pointer(), a.pointer(), b.pointer(), n)
				for k := 1; k <= len(src); k++ {
					Reduce(ty, op)(dst.pointer(), src[:k], n)
				}
				Reduce(ty, op)(a.pointer(), src, n)
			}), "%v of %v", op, ty)
		}
		if Scale(ty) != nil {
			require.Zero(t, testing.AllocsPerRun(3, func() {
				Scale(ty)(dst.pointer(), a.pointer(), n, 0.5)
				SumScale(ty)(dst.pointer(), a.pointer(), b.pointer(), n, 0.5)
			}), "scale of %v", ty)
		}
	}
	require.Zero(t, testing.AllocsPerRun(3, func() { CopyStream(dst.pointer(), a.pointer(), 16*n) }))
}

func TestNothingIsReadOrWrittenForNoElements(t *testing.T) {
	for _, ty := range dtype.Types() {
		for _, op := range dtype.Ops() {
			if f := For(ty, op); f != nil {
				f(nil, nil, nil, 0)
				for k := 1; k < 12; k++ {
					Reduce(ty, op)(nil, make([]unsafe.Pointer, k), 0)
				}
			}
		}
		if f := Scale(ty); f != nil {
			f(nil, nil, 0, 2)
			SumScale(ty)(nil, nil, nil, 0, 2)
		}
	}
	CopyStream(nil, nil, 0)
}
