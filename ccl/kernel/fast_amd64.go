//go:build !noasm

package kernel

import (
	"golang.org/x/sys/cpu"

	"github.com/goccl/goccl/ccl/dtype"
)

// hasFastBF16 counts only where the CPU has AVX-512 too.
var hasFastBF16 = cpu.X86.HasAVX512BF16

// interleavedWords is a constant of the assembly: the order that interleaves the halves of a
// vector.
var interleavedWords = func() (order [32]uint16) {
	for i := range order {
		order[i] = uint16(i/2 + i%2*16)
	}
	return order
}()

// fastFolder returns the folder that adds BF16 by the hardware's conversions.
func fastFolder() *folder {
	size := dtype.BF16.Size()
	f := &folder{pair: inVectors(sumFastBF16AVX512Block, nil, size, 1), size: size, folds: folds{multiple: 1}}
	f.blocks[3], f.blocks[4], f.blocks[8] = sum3FastBF16AVX512Block, sum4FastBF16AVX512Block, sum8FastBF16AVX512Block
	return f
}
