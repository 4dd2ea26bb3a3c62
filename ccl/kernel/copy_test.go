package kernel

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCopy(t *testing.T) {
	testCopy(t, Copy, 0, 1, 63, stringLeast-1, stringLeast, stringLeast+1, 4096, 65537, stringMost,
		stringMost+cacheLine, 2*stringMost+777)
}

// testCopy has a function copy so many bytes, on their lines and off them, and write nothing else.
func testCopy(t *testing.T, copies func(dst, src []byte) int, sizes ...int) {
	t.Helper()
	random := rand.New(rand.NewSource(1))
	const guard = 128
	for _, n := range sizes {
		for _, shift := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {63, 17}, {32, 40}} {
			src, dst := make([]byte, n+shift[1]), make([]byte, n+shift[0]+2*guard)
			random.Read(src)
			random.Read(dst)
			want := bytes.Clone(dst)
			at := guard + shift[0]
			copy(want[at:at+n], src[shift[1]:])
			require.Equal(t, n, copies(dst[at:at+n], src[shift[1]:]))
			require.True(t, bytes.Equal(want, dst), "%d bytes, %v off their lines", n, shift)
		}
	}
}

func TestCopyTakesTheShorter(t *testing.T) {
	long, short := make([]byte, 8192), bytes.Repeat([]byte{7}, 5000)
	require.Equal(t, 5000, Copy(long, short))
	require.Equal(t, byte(0), long[5000])
	require.Equal(t, 3000, Copy(long[:3000], short))
	require.Zero(t, Copy(nil, short))
	require.Zero(t, Copy(long, nil))
}

func TestCopyAllocatesNothing(t *testing.T) {
	a, b := make([]byte, 8192), make([]byte, 8192)
	require.Zero(t, testing.AllocsPerRun(100, func() { Copy(a, b) }))
}
