package exec

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

func TestCacheShare(t *testing.T) {
	for _, c := range []struct{ bytes, processors, ranks, want, alone int }{
		{0, 0, 2, 0, 0},
		{32 << 20, 8, 1, 32 << 20, 32 << 20},
		{32 << 20, 8, 2, 16 << 20, 32 << 20},
		{32 << 20, 2, 4, 16 << 20, 32 << 20}, // two ranks run on each processor, one at a time
		{32 << 20, 8, 96, 4 << 20, 32 << 20},
		{1 << 20, 0, 4, 1 << 20, 1 << 20},
	} {
		opts := Options{
			Links: make([]transport.Link, c.ranks),
			Cache: topo.Cache{Bytes: int64(c.bytes), Processors: make([]int, c.processors)},
		}
		require.Equal(t, c.alone, cacheShare(&opts), "%+v, no windows", c)
		opts.Window = new(mem.Window)
		require.Equal(t, c.want, cacheShare(&opts), "%+v", c)
	}
}

func TestStreams(t *testing.T) {
	require.False(t, streams(1<<30, 0, false, false))
	require.False(t, streams(1<<20, 32<<20, false, true))
	require.False(t, streams(16<<20, 32<<20, false, false))
	require.True(t, streams(16<<20, 32<<20, false, true))
	require.False(t, streams(16<<20, 32<<20, true, true))
	require.True(t, streams(32<<20, 32<<20, true, false))
	require.True(t, streams(16<<20, 0, false, true))
}

func TestTouched(t *testing.T) {
	memory := make([]byte, 1<<10)
	at := func(i int) Block { return Block{Ptr: unsafe.Pointer(&memory[i]), Count: 8} }
	for _, c := range []struct {
		name    string
		rank    int
		in, out []Block
		want    int
	}{
		{"nothing", 0, nil, nil, 0},
		{"all_reduce", 0, []Block{at(0)}, []Block{at(64)}, 64},
		{"all_reduce in place", 1, []Block{at(0)}, []Block{at(0)}, 32},
		{"broadcast, not the root", 1, nil, []Block{at(0)}, 32},
		{"all_gather", 1, []Block{at(0)}, []Block{at(64), at(96)}, 96},
		{"all_gather in place", 1, []Block{at(96)}, []Block{at(64), at(96)}, 64},
		{"reduce_scatter", 1, []Block{at(0), at(32)}, []Block{at(64)}, 96},
		{"reduce_scatter in place", 1, []Block{at(0), at(32)}, []Block{at(32)}, 64},
		{"all_to_all", 1, []Block{at(0), at(32)}, []Block{at(64), at(96)}, 128},
	} {
		require.Equal(t, c.want, touched(&Call{Type: dtype.F32, In: c.in, Out: c.out}, c.rank), c.name)
	}
}
