//go:build !noasm

package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// vectorConversions are the blocks that convert to F32, and those that convert from it.
var vectorConversions = [isaCount][typeCount]struct{ widen, narrow ConvertFunc }{
	avx2: {
		dtype.F16:  {widenF16AVX2Block, narrowF16AVX2Block},
		dtype.BF16: {widenBF16AVX2Block, narrowBF16AVX2Block},
	},
	avx512: {
		dtype.F16:  {widenF16AVX512Block, narrowF16AVX512Block},
		dtype.BF16: {widenBF16AVX512Block, narrowBF16AVX512Block},
	},
}

func vectorConversion(dst, src dtype.Type, with isa) ConvertFunc {
	table, lanes := &vectorConversions[with.whole()], 16
	if with.whole() == avx2 {
		lanes = 8
	}
	var block ConvertFunc
	switch dtype.F32 {
	case dst:
		block = table[src].widen
	case src:
		block = table[dst].narrow
	}
	if block == nil {
		return nil
	}
	rest, to, from := genericConversion(dst, src), dst.Size(), src.Size()
	return func(dst, src unsafe.Pointer, n int) { convertInVectors(block, rest, to, from, lanes, dst, src, n) }
}

// convertInVectors gives f whole vectors, chunkBytes of F32 at a time, and the rest to the loop in
// Go.
func convertInVectors(f, rest ConvertFunc, to, from, lanes int, dst, src unsafe.Pointer, n int) {
	done, whole := 0, n&^(lanes-1)
	for done < whole {
		part := min(whole-done, chunkBytes/4)
		preemptibleConversion(f, unsafe.Add(dst, done*to), unsafe.Add(src, done*from), part)
		done += part
	}
	if done < n {
		rest(unsafe.Add(dst, done*to), unsafe.Add(src, done*from), n-done)
	}
}

//go:noinline
func preemptibleConversion(f ConvertFunc, dst, src unsafe.Pointer, n int) { f(dst, src, n) }
