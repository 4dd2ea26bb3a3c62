//go:build !noasm

package kernel

import (
	"slices"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

const haveAssembly = true

// machineISAs lists the instruction sets that this machine can run, the best last. NEON is part of
// every arm64 CPU, but its kernels are used only if they show that they give the bits of the loops
// in Go: an emulator or a control word may differ.
var machineISAs = detectISAs()

func detectISAs() []isa {
	if givesTheBits(sumF32NEON, sumFloats[float32], 4) && givesTheBits(sumBF16NEON, sumBF16, 2) {
		return []isa{neon}
	}
	return nil
}

// corners are F32 of which each half is also a hard case of BF16: zeros, subnormals, ties of
// rounding, the largest numbers; then infinities and NaN of both kinds.
var corners = [...]uint32{
	0, 0x80000000, 1, 0x80000001, 0x00010001, 0x00808080, 0x00400040, 0x007fff7f, 0x00800000, 0x80808080,
	0x3f800000, 0xbf800001,
	0x3f803f81, 0x3f818000, 0x40004000, 0x4b000001, 0x7f7f7f7f, 0xff7f7f7f,
	0x7f800000, 0xff800000, 0x7fc00001, 0xffc0ffc1, 0x7f800001, 0xff817f81,
}

const finiteCorners = 18

// givesTheBits compares f with the loop in Go on every pair of corners: first without infinities
// and NaN, which assembly leaves to the loop, then with them.
func givesTheBits(f, loop Func, size int) bool {
	for _, some := range [][]uint32{corners[:finiteCorners], corners[:]} {
		count := len(some) * len(some)
		a, b, got, want := make([]uint32, count), make([]uint32, count), make([]uint32, count), make([]uint32, count)
		for i := range count {
			a[i], b[i] = some[i/len(some)], some[i%len(some)]
		}
		n := count * 4 / size
		f(unsafe.Pointer(&got[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), n)
		loop(unsafe.Pointer(&want[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), n)
		if !slices.Equal(got, want) {
			return false
		}
	}
	return true
}

// The functions below return the kernel in assembly, or nil if there is none.

func vectorReduction(t dtype.Type, op dtype.Op, with isa) Func {
	switch {
	case with != neon || op != dtype.Sum:
	case t == dtype.F32:
		return sumF32NEON
	case t == dtype.BF16:
		return sumBF16NEON
	}
	return nil
}

func vectorScaling(dtype.Type, isa) ScaleFunc { return nil }

func vectorSumScaling(dtype.Type, isa) SumScaleFunc { return nil }

func vectorFold(dtype.Type, dtype.Op, isa) folds { return folds{} }

func vectorCopy(isa) CopyFunc { return nil }

func vectorConversion(dst, src dtype.Type, with isa) ConvertFunc { return nil }

// neonBlock does whole sixteens of n elements up to the first sixteen in which a sum is NaN, and
// returns the number of elements done.
type neonBlock func(dst, a, b unsafe.Pointer, n int) (done int)

//go:noescape
func sumF32NEONBlock(dst, a, b unsafe.Pointer, n int) (done int)

//go:noescape
func sumBF16NEONBlock(dst, a, b unsafe.Pointer, n int) (done int)

func sumF32NEON(dst, a, b unsafe.Pointer, n int) {
	inSixteens(sumF32NEONBlock, sumFloats[float32], 4, dst, a, b, n)
}

func sumBF16NEON(dst, a, b unsafe.Pointer, n int) {
	inSixteens(sumBF16NEONBlock, sumBF16, 2, dst, a, b, n)
}

// chunkBytes bounds one call of assembly, in bytes of one operand: a goroutine cannot be stopped
// inside it, and everything that stops the world waits.
const chunkBytes = 256 << 10

// inSixteens gives f at most chunkBytes at a time. The loop in Go does the sixteens at which f
// stops, and the rest.
func inSixteens(f neonBlock, loop Func, size int, dst, a, b unsafe.Pointer, n int) {
	done, at := 0, 0
	for n-done >= 16 {
		part := min(n-done, chunkBytes/size)
		some := preemptible(f, unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), part)
		at += some * size
		if part-some >= 16 {
			loop(unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), 16)
			some += 16
			at += 16 * size
		}
		done += some
	}
	if done < n {
		loop(unsafe.Add(dst, at), unsafe.Add(a, at), unsafe.Add(b, at), n-done)
	}
}

// preemptible is not inlined, so that it has a prologue, where the scheduler can stop the
// goroutine.
//
//go:noinline
func preemptible(f neonBlock, dst, a, b unsafe.Pointer, n int) int { return f(dst, a, b, n) }
