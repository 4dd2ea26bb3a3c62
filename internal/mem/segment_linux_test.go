package mem_test

import (
	"os"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSegmentIsShared(t *testing.T) {
	before := mem.InUse()
	own, err := mem.NewSegment("goccl-test", 3*4096)
	require.NoError(t, err)
	other, err := mem.MapSegment(own.FD(), 3*4096)
	require.NoError(t, err)
	require.Equal(t, before+2*3*4096, mem.InUse())
	require.Equal(t, -1, other.FD())
	require.NoError(t, own.CloseFD())
	require.Equal(t, -1, own.FD())

	own.Bytes()[5000] = 42
	require.EqualValues(t, 42, other.Bytes()[5000])
	require.NoError(t, own.Free())
	require.NoError(t, own.Free())
	require.EqualValues(t, 42, other.Bytes()[5000], "a mapping outlives the maker's")
	require.NoError(t, other.Free())
	require.Nil(t, other.Bytes())
	require.Equal(t, before, mem.InUse())
}

func TestSegmentIsSealed(t *testing.T) {
	s, err := mem.NewSegment("goccl-test", 4096)
	require.NoError(t, err)
	defer s.Free()
	require.ErrorIs(t, unix.Ftruncate(s.FD(), 100), unix.EPERM)
	require.ErrorIs(t, unix.Ftruncate(s.FD(), 100000), unix.EPERM)
	_, err = unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.ErrorIs(t, err, unix.EPERM)
	flags, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
}

func TestSegmentRefusals(t *testing.T) {
	_, err := mem.NewSegment("goccl-test", 0)
	require.ErrorIs(t, err, fault.Invalid)
	_, err = mem.NewSegment("goccl-test", 1<<50)
	require.ErrorIs(t, err, fault.System, "shortage is an error when the segment is made")

	good, err := mem.NewSegment("goccl-test", 4096)
	require.NoError(t, err)
	defer good.Free()
	file, err := os.CreateTemp(t.TempDir(), "plain")
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(4096))
	memfd := func(seals int, allocate bool) int {
		fd, err := unix.MemfdCreate("goccl-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		require.NoError(t, unix.Ftruncate(fd, 4096))
		if allocate {
			require.NoError(t, unix.Fallocate(fd, 0, 0, 4096))
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		require.NoError(t, err)
		return fd
	}
	both := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	for _, tt := range []struct {
		name      string
		fd, bytes int
	}{
		{"too small", good.FD(), 8192},
		{"too large", good.FD(), 4095},
		{"no size", good.FD(), 0},
		{"negative", good.FD(), -4096},
		{"no descriptor", -1, 4096},
		{"a plain file", int(file.Fd()), 4096},
		{"not sealed", memfd(0, true), 4096},
		{"may grow", memfd(unix.F_SEAL_SHRINK, true), 4096},
		{"may shrink", memfd(unix.F_SEAL_GROW, true), 4096},
		{"has holes", memfd(both, false), 4096},
	} {
		_, err := mem.MapSegment(tt.fd, tt.bytes)
		require.ErrorIs(t, err, fault.Invalid, tt.name)
	}
	fine, err := mem.MapSegment(memfd(both, true), 4096)
	require.NoError(t, err)
	require.NoError(t, fine.Free())
}
