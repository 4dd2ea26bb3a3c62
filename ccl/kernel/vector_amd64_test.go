//go:build amd64 && !noasm

package kernel

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// The kernel of the operating system says independently what the CPU has.
func TestTheInstructionSetIsTheOneOfThisCPU(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if runtime.GOOS != "linux" || err != nil {
		t.Skip("no /proc/cpuinfo")
	}
	_, flags, _ := strings.Cut(string(info), "\nflags")
	flags, _, _ = strings.Cut(flags, "\n")
	has := map[string]bool{}
	for _, f := range strings.Fields(flags) {
		has[f] = true
	}
	want := noISA
	if has["avx2"] && has["f16c"] {
		want = avx2
		if has["avx512f"] && has["avx512bw"] && has["avx512vl"] {
			want = avx512
		}
	}
	require.Equal(t, want, bestISA)
}

// Every 16-bit value against some: all corners of the rounding, in every lane.
func TestHalfSumsEqualTheLoopInGo(t *testing.T) {
	a, b := newGuarded(2<<16, 0), newGuarded(2<<16, 0)
	for u := range 1 << 16 {
		store(a.data[2*u:], 2, uint64(u))
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, ty := range []dtype.Type{dtype.F16, dtype.BF16} {
		for range 24 {
			other := interesting(r, ty)
			for u := range 1 << 16 {
				store(b.data[2*u:], 2, other)
			}
			want := newGuarded(2<<16, 0)
			sumWith(ty, noISA)(want.pointer(), a.pointer(), b.pointer(), 1<<16)
			for _, i := range isas()[1:] {
				got := newGuarded(2<<16, 0)
				sumWith(ty, i)(got.pointer(), a.pointer(), b.pointer(), 1<<16)
				if at := mismatch(want.data, got.data); at >= 0 {
					at &^= 1
					t.Fatalf("%v by %v: %#x + %#x gave %#x, want %#x", ty, i, at/2, other, load(got.data[at:], 2), load(want.data[at:], 2))
				}
			}
		}
	}
}

func mismatch(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// Lengths and alignments around those where the code changes its loop.
func TestSumsEqualTheLoopInGoAtEveryAlignment(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for ty := range formats {
		size := ty.Size()
		for round := range 400 {
			n := r.IntN(2200 / size)
			if round == 0 {
				n = 3*chunkBytes/size + 5
			}
			a, b := newGuarded(n*size, size*r.IntN(64/size)), newGuarded(n*size, size*r.IntN(64/size))
			fill(r, ty, a.data)
			fill(r, ty, b.data)
			want := newGuarded(n*size, 0)
			sumWith(ty, noISA)(want.pointer(), a.pointer(), b.pointer(), n)
			for _, i := range isas()[1:] {
				got := newGuarded(n*size, size*r.IntN(64/size))
				sumWith(ty, i)(got.pointer(), a.pointer(), b.pointer(), n)
				require.Equal(t, -1, mismatch(want.data, got.data), "%v by %v, n %d", ty, i, n)
				require.NoError(t, got.broken())
			}
		}
	}
}

func TestScalesEqualTheLoopInGoAcrossChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for ty := range formats {
		size := ty.Size()
		n := 2*chunkBytes/size + 7
		src := newGuarded(n*size, size)
		fill(r, ty, src.data)
		want := newGuarded(n*size, 0)
		scaleWith(ty, noISA)(want.pointer(), src.pointer(), n, 1.0/3)
		for _, i := range isas()[1:] {
			got := newGuarded(n*size, 0)
			scaleWith(ty, i)(got.pointer(), src.pointer(), n, 1.0/3)
			require.Equal(t, -1, mismatch(want.data, got.data), "%v by %v", ty, i)
			require.NoError(t, got.broken())
		}
	}
}

// One call of assembly is bounded, and the calls cover all elements once, in order.
func TestChunksAreBounded(t *testing.T) {
	const size = 4
	for _, n := range []int{0, 1, chunkBytes/size - 1, chunkBytes / size, chunkBytes/size + 1, 5*chunkBytes/size + 3} {
		buf := make([]byte, n*size+1)
		base := unsafe.Pointer(&buf[0])
		next := 0
		step := func(p unsafe.Pointer, count int) {
			require.Positive(t, count)
			require.LessOrEqual(t, count*size, chunkBytes)
			require.Equal(t, next*size, int(uintptr(p)-uintptr(base)))
			next += count
		}
		inChunks(func(dst, a, b unsafe.Pointer, count int) {
			require.True(t, dst == a && a == b)
			step(dst, count)
		}, size, base, base, base, n)
		require.Equal(t, n, next)
		next = 0
		scaleInChunks(func(dst, src unsafe.Pointer, count int, _ float64) {
			require.True(t, dst == src)
			step(dst, count)
		}, size, base, base, n, 1)
		require.Equal(t, n, next)
	}
}
