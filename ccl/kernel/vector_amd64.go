//go:build amd64 && !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/goccl/goccl/ccl/dtype"
)

const haveAssembly = true

// machineISAs lists the instruction sets that this CPU and its operating system offer, the best
// last.
var machineISAs = detectISAs()

func detectISAs() []isa {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasF16C:
		return nil
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL || !x.HasBMI2:
		return []isa{avx2}
	case !hasAVX512FP16():
		return []isa{avx2, avx512}
	}
	return []isa{avx2, avx512, avx512fp16}
}

// hasAVX512FP16 is for CPUs that have AVX-512, under an operating system that keeps its registers.
func hasAVX512FP16() bool {
	highest, edx := cpuid7()
	return highest >= 7 && edx>>23&1 != 0
}

// cpuid7 returns the highest leaf of CPUID, and EDX of leaf 7, which means nothing if the highest
// leaf is less than 7.
func cpuid7() (highest, edx uint32)

// The functions below return the kernel in assembly, or nil if there is none.

func vectorReduction(t dtype.Type, op dtype.Op, with isa) Func {
	if f := vectorReductions[with][t][op]; f != nil {
		return f
	}
	return vectorReductions[with.whole()][t][op]
}

func vectorScaling(t dtype.Type, with isa) ScaleFunc { return vectorScalings[with.whole()][t] }

func vectorSumScaling(t dtype.Type, with isa) SumScaleFunc { return vectorSumScalings[with.whole()][t] }

func vectorFold(t dtype.Type, op dtype.Op, with isa) folds {
	f := folds{blocks: vectorFolds[with][t][op]}
	if f.blocks[3] == nil {
		f.blocks = vectorFolds[with.whole()][t][op]
	}
	switch {
	case f.blocks[3] == nil:
	case with == avx2: // AVX2 takes whole vectors only
		f.multiple = 32 / t.Size()
	default:
		f.multiple = 1
	}
	return f
}

func vectorCopy(with isa) CopyFunc {
	switch with.whole() {
	case avx2:
		return copyStreamAVX2
	case avx512:
		return copyStreamAVX512
	}
	return nil
}

func copyStreamAVX2(dst, src unsafe.Pointer, n int)   { copyInLines(copyAVX2Lines, dst, src, n) }
func copyStreamAVX512(dst, src unsafe.Pointer, n int) { copyInLines(copyAVX512Lines, dst, src, n) }
