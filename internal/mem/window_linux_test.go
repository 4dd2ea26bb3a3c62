package mem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
)

func TestWindow(t *testing.T) {
	before := mem.InUse()
	for _, shared := range []bool{false, true} {
		w, err := mem.NewWindow(8192, shared)
		require.NoError(t, err)
		require.Len(t, w.Bytes(), 8192)
		require.Equal(t, 8192, w.Size())
		require.Equal(t, shared, w.Segment() != nil)
		require.Equal(t, before+8192, mem.InUse())
		w.Retain()
		w.Release()
		w.Bytes()[8191] = 1
		if shared {
			peer, err := mem.MapSegment(w.Segment().FD(), 8192)
			require.NoError(t, err)
			require.EqualValues(t, 1, peer.Bytes()[8191])
			w.Bytes()[8191] = 2
			require.EqualValues(t, 2, peer.Bytes()[8191], "a peer sees what the owner writes")
			require.NoError(t, peer.Free())
		}
		w.Release()
		require.Equal(t, before, mem.InUse())
		_, err = mem.NewWindow(0, shared)
		require.ErrorIs(t, err, fault.Invalid)
	}
	var none *mem.Window
	require.Zero(t, none.Size())
	none.Release()
}
