//go:build amd64 && !noasm

package kernel

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

var emulated = flag.Bool("emulated.avx512fp16", false, "something emulates the instructions of AVX512-FP16: use them")

func TestMain(m *testing.M) {
	flag.Parse()
	if *emulated && bestISA == avx512 {
		machineISAs = append(machineISAs, avx512fp16)
		choose()
	}
	os.Exit(m.Run())
}

func TestF16IsByTheKernelsOfAVX512FP16(t *testing.T) {
	if !slices.Contains(machineISAs, avx512fp16) {
		t.Skip("this processor has no AVX512-FP16")
	}
	own, other := &vectorReductions[avx512fp16][dtype.F16], &vectorReductions[avx512]
	require.Equal(t, kernelOf(own[dtype.Sum]), kernelOf(For(dtype.F16, dtype.Sum)))
	require.Equal(t, kernelOf(own[dtype.Sum]), kernelOf(For(dtype.F16, dtype.Avg)))
	require.Equal(t, kernelOf(own[dtype.Prod]), kernelOf(For(dtype.F16, dtype.Prod)))
	f := newFolder(dtype.F16, dtype.Sum, bestISA)
	for sources, block := range map[int]foldBlock{
		3: sum3F16AVX512FP16Block, 4: sum4F16AVX512FP16Block, 8: sum8F16AVX512FP16Block,
	} {
		require.Equal(t, codeOf(block), codeOf(f.blocks[sources]), "%d sources", sources)
	}
	// The other kernels are those of AVX-512.
	require.Equal(t, kernelOf(other[dtype.F16][dtype.Min]), kernelOf(For(dtype.F16, dtype.Min)))
	require.Equal(t, kernelOf(vectorScalings[avx512][dtype.F16]), kernelOf(Scale(dtype.F16)))
	require.Equal(t, kernelOf(other[dtype.F32][dtype.Sum]), kernelOf(For(dtype.F32, dtype.Sum)))
}

// The tests of this package run once more with both instructions emulated, as on a processor that
// has them: the kernels themselves run, and code that shares nothing with the generator decodes
// every encoding that they have.
func TestAVX512FP16Emulated(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	switch {
	case testing.Short():
		t.Skip("the tests of this package once more are not short")
	case runtime.GOOS != "linux" || bestISA != avx512 || *emulated:
		t.Skip("the emulator is for a Linux machine with AVX-512 and without AVX512-FP16")
	case err != nil:
		t.Skip("no C compiler to build the emulator with")
	case !dynamic(t):
		t.Skip("nothing can be preloaded into this program, which is static: it was built without cgo")
	}
	library := filepath.Join(t.TempDir(), "avx512fp16.so")
	said, err := exec.Command(compiler, "-O2", "-shared", "-fPIC", "-o", library,
		"testdata/avx512fp16.c", "-lm", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", said)
	// The first of the skipped tests needs too many signals, the others need none.
	again := exec.Command(os.Args[0],
		"-emulated.avx512fp16", "-test.short", "-test.v", "-test.count=1", "-test.timeout=2m",
		"-test.skip=TestTwoRoundingsOfF16AreOne|Quarter|Narrow|Conversion")
	again.Env = append(os.Environ(), "LD_PRELOAD="+library)
	said, err = again.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "--- PASS: TestF16IsByTheKernelsOfAVX512FP16")
}

// dynamic reports whether ld.so links this program.
func dynamic(t *testing.T) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Contains(string(maps), "/ld-linux")
}
