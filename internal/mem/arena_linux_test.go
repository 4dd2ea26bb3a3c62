package mem_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
)

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// pages returns the number of bytes of a descriptor that have memory.
func pages(t *testing.T, fd int) int64 {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	return st.Blocks * 512
}

func TestArena(t *testing.T) {
	const size = 64 << 20
	before := mem.InUse()
	a, err := mem.NewArena(size)
	require.NoError(t, err)
	fd, err := unix.Dup(a.FD())
	require.NoError(t, err)
	defer unix.Close(fd)
	require.Equal(t, before, mem.InUse(), "room among addresses is no memory")
	require.Zero(t, pages(t, fd))

	small, err := a.Alloc(1)
	require.NoError(t, err)
	large, err := a.Alloc(5<<20 + 1)
	require.NoError(t, err)
	require.Len(t, large, 5<<20+1)
	require.Equal(t, 4096+5<<20+4096, a.InUse())
	require.Zero(t, uintptr(pointer(large))%(2<<20))
	large[0], large[len(large)-1], small[0] = 1, 2, 3

	// A peer sees the same bytes at the same offsets.
	peer, err := mem.MapArena(fd, size)
	require.NoError(t, err)
	at, ok := a.Place(unsafe.Pointer(&large[len(large)-1]))
	require.True(t, ok)
	require.EqualValues(t, 2, peer.Bytes()[at])
	_, err = peer.Alloc(1)
	require.Error(t, err)
	_, ok = a.Place(unsafe.Pointer(&peer.Bytes()[0]))
	require.False(t, ok)
	_, ok = a.Place(nil)
	require.False(t, ok)

	// An allocation of the same size reuses a freed range, which has kept its pages.
	had := pages(t, fd)
	require.NoError(t, a.Free(pointer(large)))
	require.Equal(t, had, pages(t, fd))
	again, err := a.Alloc(5 << 20)
	require.NoError(t, err)
	require.NotEqual(t, pointer(large), pointer(again), "another size")
	same, err := a.Alloc(5<<20 + 100)
	require.NoError(t, err)
	require.Equal(t, pointer(large), pointer(same))

	// Allocation fails in a full arena. Once all is freed, the kept pages are given up for another
	// size.
	_, err = a.Alloc(size - 4096)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "GOCCL_REGISTERED")
	require.NoError(t, a.Free(pointer(same)))
	require.NoError(t, a.Free(pointer(again)))
	require.NoError(t, a.Free(pointer(small)))
	whole, err := a.Alloc(size)
	require.NoError(t, err)
	require.Zero(t, whole[size-1])
	require.NoError(t, a.Free(pointer(whole)))
	require.Less(t, pages(t, fd), int64(size), "so much is not kept")

	require.ErrorIs(t, a.Free(pointer(whole)), fault.Invalid)
	require.ErrorIs(t, a.Free(unsafe.Pointer(t)), fault.Invalid)
	for _, n := range []int{0, -1, size + 1} {
		_, err = a.Alloc(n)
		require.ErrorIs(t, err, fault.Invalid)
	}

	// The memory outlives the closed arena while an allocation remains, here and at peers.
	last, err := a.Alloc(3 << 20)
	require.NoError(t, err)
	last[77] = 9
	at, _ = a.Place(pointer(last))
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.EqualValues(t, 9, last[77])
	require.EqualValues(t, 9, peer.Bytes()[at+77])
	_, err = a.Alloc(1)
	require.ErrorIs(t, err, fault.Closed)
	require.NoError(t, a.Free(pointer(last)))
	require.Nil(t, a.Bytes())
	require.Zero(t, pages(t, fd))
	require.NoError(t, peer.Close())
	require.Equal(t, before, mem.InUse())
}

func TestForeignArenas(t *testing.T) {
	a, err := mem.NewArena(2 << 20)
	require.NoError(t, err)
	defer a.Close()
	for _, n := range []int{1 << 20, 4 << 20, 0} {
		_, err := mem.MapArena(a.FD(), n)
		require.ErrorIs(t, err, fault.Invalid)
	}
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, 2<<20))
	_, err = mem.MapArena(fd, 2<<20)
	require.ErrorIs(t, err, fault.Invalid)
	_, err = mem.NewArena(1000)
	require.ErrorIs(t, err, fault.Invalid)
}
