package window

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/program"
)

// The place that a peer announces is checked against the memory that this rank has mapped, and
// against the length that this rank expects.
func TestExposedBounds(t *testing.T) {
	const size = 1 << 16
	arena := make([]byte, size)
	window := make([]byte, header)
	w := Set{ranks: []Rank{{}, windowOf((*page)(unsafe.Pointer(&window[0])), nil)}, arenas: [][]byte{nil, arena}}
	n := w.Record(1)
	at, lent, ok := w.Exposed(1, 0, 8)
	require.True(t, ok)
	require.False(t, lent)
	require.Nil(t, at)
	n.mask = 1<<0 | 1<<(program.MaxExposed-1)
	for _, c := range []struct {
		place uint64
		bytes int
		ok    bool
	}{
		{0, 0, true}, {0, 8, true}, {0, size, true}, {size - 8, 8, true}, {100, 1, true},
		{0, size + 1, false}, {size - 7, 8, false}, {size, 1, false}, {size + 1, 8, false}, {1 << 63, 8, false},
		{^uint64(0), 8, false}, {^uint64(0) - 6, 8, false}, {^uint64(0), 0, true}, {8, 1 << 46, false},
	} {
		for _, chunk := range []int{0, program.MaxExposed - 1} {
			n.places[chunk] = c.place
			at, lent, ok := w.Exposed(1, chunk, c.bytes)
			require.Equal(t, c.ok, ok, "%+v", c)
			require.True(t, lent)
			if ok && c.bytes > 0 {
				require.Equal(t, unsafe.Pointer(&arena[c.place]), at)
			} else {
				require.Nil(t, at)
			}
		}
	}
	_, lent, ok = w.Exposed(1, 1, 8)
	require.True(t, ok)
	require.False(t, lent, "of this chunk nothing was said")
}

// An operation that exposes nothing clears the mask of its record and leaves the places as they
// are.
func TestExpose(t *testing.T) {
	var n Record
	e := Exposure{Mask: 5}
	e.Places[0], e.Places[2] = 64, 128
	n.Expose(&e)
	require.EqualValues(t, 5, n.mask)
	require.EqualValues(t, 128, n.places[2])
	n.Expose(&Exposure{})
	require.Zero(t, n.mask)
	require.EqualValues(t, 128, n.places[2])
}
