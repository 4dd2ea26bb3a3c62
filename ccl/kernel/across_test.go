package kernel

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopyAcross copies while the cores seem near, and while they seem far apart, timed and not.
func TestCopyAcross(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	const guard = 128
	for _, slow := range []int32{0, sureFar} {
		for _, n := range []int{
			0, 1, 4096, acrossLeast - 1, acrossLeast, acrossLeast + 1, probeBytes + 77, 3*probeBytes + 5,
		} {
			for turn := range uint32(farEvery + 1) {
				if turn > 2 && turn%nearEvery > 1 && n > acrossLeast {
					continue
				}
				var d distance
				d.slow.Store(slow)
				d.copies.Store(turn)
				shift := random.Intn(64)
				src, dst := make([]byte, n+shift), make([]byte, n+2*guard)
				random.Read(src)
				want := bytes.Clone(dst)
				copy(want[guard:], src[shift:])
				require.Equal(t, n, d.copy(dst[guard:guard+n], src[shift:]))
				require.True(t, bytes.Equal(want, dst), "%d bytes, turn %d, slow %d", n, turn, slow)
			}
		}
	}
	require.Equal(t, 20000, CopyAcross(make([]byte, 30000), make([]byte, 20000)), "it takes the shorter")
}

// TestDistance checks what timed copies teach.
func TestDistance(t *testing.T) {
	const n, line = 64 << 10, 64 << 10 / cacheLine
	var d distance
	far := func() bool { return d.slow.Load() >= sureFar }
	d.observe(28*line, n)
	require.False(t, far(), "once is chance: the thread may have lost its core")
	d.observe(7*line, n)
	d.observe(28*line, n)
	require.False(t, far())
	d.observe(28*line, n)
	require.True(t, far())
	d.observe(100*line, n)
	require.True(t, far())
	d.observe(7*line, n)
	require.False(t, far(), "they share a cache again")
}

func TestCopyAcrossAllocatesNothing(t *testing.T) {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	require.Zero(t, testing.AllocsPerRun(600, func() { CopyAcross(a, b) }))
}
