//go:build !noasm

package kernel

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A kernel that differs in one bit of one kind of element must be refused.
func TestOtherBitsAreRefused(t *testing.T) {
	require.True(t, givesTheBits(sumFloats[float32], sumFloats[float32], 4))
	for name, wrong := range map[string]func(u uint32) uint32{
		"a NaN is positive": func(u uint32) uint32 {
			if u == 0xffc00000 {
				return 0x7fc00000
			}
			return u
		},
		"a subnormal is flushed": func(u uint32) uint32 {
			if u&0x7f800000 == 0 {
				return u & 0x80000000
			}
			return u
		},
		"the last place is lost": func(u uint32) uint32 { return u &^ 1 },
	} {
		require.False(t, givesTheBits(func(dst, a, b unsafe.Pointer, n int) {
			sumF32NEON(dst, a, b, n)
			for i, u := range unsafe.Slice((*uint32)(dst), n) {
				unsafe.Slice((*uint32)(dst), n)[i] = wrong(u)
			}
		}, sumFloats[float32], 4), name)
	}
}

// One call of assembly must be bounded, and the calls and the loop in Go must cover all elements
// once, in order, wherever a NaN is.
func TestSixteensAreBounded(t *testing.T) {
	const size = 4
	for _, n := range []int{0, 1, 15, 16, 17, 300, chunkBytes / size, 2*chunkBytes/size + 37} {
		for _, every := range []int{1 << 30, 100, 5} { // of this many sixteens f leaves the last one
			next := 0
			base := make([]byte, n*size+1)
			step := func(p unsafe.Pointer, count int) {
				require.Equal(t, next*size, int(uintptr(p)-uintptr(unsafe.Pointer(&base[0]))))
				next += count
			}
			inSixteens(func(dst, a, b unsafe.Pointer, count int) int {
				require.LessOrEqual(t, count*size, chunkBytes)
				done := min(count/16, every-1) * 16
				step(dst, done)
				return done
			}, func(dst, a, b unsafe.Pointer, count int) {
				step(dst, count)
			}, size, unsafe.Pointer(&base[0]), unsafe.Pointer(&base[0]), unsafe.Pointer(&base[0]), n)
			require.Equal(t, n, next)
		}
	}
}
