//go:build amd64 && !noasm

package kernel

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

// The kernel of the operating system reports independently what the CPU has.
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
		if has["avx512f"] && has["avx512bw"] && has["avx512dq"] && has["avx512vl"] && has["bmi2"] {
			want = avx512
			if has["avx512_fp16"] || *emulated {
				want = avx512fp16
			}
		}
	}
	require.Equal(t, want, bestISA)
	require.Equal(t, want.whole() == avx512 && has["avx512_bf16"], HasFastBF16())
}

// The lengths and alignments are around those at which the code changes its loop.
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
			pairWith(ty, dtype.Sum, noISA)(want.pointer(), a.pointer(), b.pointer(), n)
			for _, i := range isas()[1:] {
				got := newGuarded(n*size, size*r.IntN(64/size))
				pairWith(ty, dtype.Sum, i)(got.pointer(), a.pointer(), b.pointer(), n)
				require.Equal(t, -1, mismatch(want.data, got.data), "%v by %v, n %d", ty, i, n)
				require.NoError(t, got.broken())
			}
		}
	}
}

func TestScalesEqualTheLoopInGoAcrossChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for ty := range formats {
		if ty.Float8() { // scaled by a table
			continue
		}
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

// One call of assembly must be bounded, and the calls must cover all elements once, in order.
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
		inVectors(func(dst, a, b unsafe.Pointer, count int) {
			require.True(t, dst == a && a == b)
			step(dst, count)
		}, nil, size, 1)(base, base, base, n)
		require.Equal(t, n, next)
		next = 0
		scaleInVectors(func(dst, src unsafe.Pointer, count int, _ float64) {
			require.True(t, dst == src)
			step(dst, count)
		}, nil, size, 1)(base, base, n, 1)
		require.Equal(t, n, next)
	}
}

func TestFoldsAreBounded(t *testing.T) {
	const size = 4
	for _, n := range []int{1, foldBytes/size - 1, foldBytes / size, foldBytes/size + 1, 3*foldBytes/size + 5} {
		next := 0
		f := &folder{size: size, folds: folds{multiple: 1}}
		f.blocks[3] = func(_ unsafe.Pointer, _ *unsafe.Pointer, offset, count int) {
			require.LessOrEqual(t, count*size, foldBytes)
			require.Equal(t, next*size, offset)
			next += count
		}
		f.reduce(nil, make([]unsafe.Pointer, 3), n)
		require.Equal(t, n, next)
	}
}
