package exec

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// What a peer says of a place is compared with what this rank has mapped, and with the length that this rank expects.
func TestBorrowedBounds(t *testing.T) {
	const size = 1 << 16
	arena := make([]byte, size)
	window := make([]byte, windowHeader)
	w := shared{ranks: []sharedRank{{}, windowOf((*page)(unsafe.Pointer(&window[0])), nil)}, arenas: [][]byte{nil, arena}}
	n := w.notice(1)
	at, lent, ok := w.borrowed(1, 0, 8)
	require.True(t, ok)
	require.False(t, lent)
	require.Nil(t, at)
	n.mask = 1<<0 | 1<<(mostLent-1)
	for _, c := range []struct {
		place uint64
		bytes int
		ok    bool
	}{
		{0, 0, true}, {0, 8, true}, {0, size, true}, {size - 8, 8, true}, {100, 1, true},
		{0, size + 1, false}, {size - 7, 8, false}, {size, 1, false}, {size + 1, 8, false}, {1 << 63, 8, false}, {^uint64(0), 8, false},
		{^uint64(0) - 6, 8, false}, {^uint64(0), 0, true}, {8, 1 << 46, false},
	} {
		for _, chunk := range []int{0, mostLent - 1} {
			n.lent[chunk] = c.place
			at, lent, ok := w.borrowed(1, chunk, c.bytes)
			require.Equal(t, c.ok, ok, "%+v", c)
			require.True(t, lent)
			if ok && c.bytes > 0 {
				require.Equal(t, unsafe.Pointer(&arena[c.place]), at)
			} else {
				require.Nil(t, at)
			}
		}
	}
	_, lent, ok = w.borrowed(1, 1, 8)
	require.True(t, ok)
	require.False(t, lent, "of this chunk nothing was said")
	require.ErrorIs(t, (&Comm{}).astray(1), fault.Internal)
}

// Notices of operations that lend nothing stay as they are.
func TestTell(t *testing.T) {
	var n notice
	l := exposure{mask: 5}
	l.places[0], l.places[2] = 64, 128
	l.tell(&n)
	require.EqualValues(t, 5, n.mask)
	require.EqualValues(t, 128, n.lent[2])
	(&exposure{}).tell(&n)
	require.Zero(t, n.mask)
	require.EqualValues(t, 128, n.lent[2])
}
