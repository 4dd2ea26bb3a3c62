//go:build !noasm

package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

func vectorConversion(dst, src dtype.Type, with isa) ConvertFunc {
	short, widens := src, dst == dtype.F32
	switch {
	case !widens && src != dtype.F32:
		return nil
	case !widens:
		short = dst
	}
	var block ConvertFunc
	lanes := 16
	switch with.whole() {
	case avx2:
		lanes = 8
		switch {
		case short == dtype.F16 && widens:
			block = widenF16AVX2Block
		case short == dtype.F16:
			block = narrowF16AVX2Block
		case short == dtype.BF16 && widens:
			block = widenBF16AVX2Block
		case short == dtype.BF16:
			block = narrowBF16AVX2Block
		}
	case avx512:
		switch {
		case short == dtype.F16 && widens:
			block = widenF16AVX512Block
		case short == dtype.F16:
			block = narrowF16AVX512Block
		case short == dtype.BF16 && widens:
			block = widenBF16AVX512Block
		case short == dtype.BF16:
			block = narrowBF16AVX512Block
		}
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
