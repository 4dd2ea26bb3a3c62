package mem

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func address(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&memory[0]))) }

func huge(t *testing.T, memory []byte) int {
	f, err := os.Open("/proc/self/smaps")
	require.NoError(t, err)
	defer f.Close()
	return hugeIn(f, address(memory), address(memory)+uint64(len(memory)))
}

// TestPlacedSegments checks that segments work whether or not the kernel honours their placement.
// Where the probe has found a way, segments are in huge pages in the process that made them and in
// a receiver, which gains nothing from the huge pages of other mappings.
func TestPlacedSegments(t *testing.T) {
	found := ProbeHugePages("/")
	t.Logf("%+v, %+v", found, ProbeHome("/"))
	before := InUse()
	for _, bytes := range []int{5000, hugeBytes - 1, hugeBytes, hugeBytes + 4096, 3*hugeBytes + 100} {
		for _, at := range []placement{
			{SmallPages, -1}, {Advised, -1}, {Collapsed, -1}, {found.Way, -1}, {found.Way, 0}, {found.Way, 1000},
		} {
			own, err := newSegment("goccl-test", bytes, at)
			require.NoError(t, err)
			peer, err := MapSegment(own.FD(), bytes)
			require.NoError(t, err)
			require.Equal(t, before+int64(2*bytes), InUse())
			for _, m := range [][]byte{own.Bytes(), peer.Bytes()} {
				require.Len(t, m, bytes)
				if bytes >= hugeBytes {
					require.Zero(t, address(m)%hugeBytes)
				}
			}
			if whole := bytes &^ (hugeBytes - 1); at.way == found.Way && found.Way != SmallPages &&
				huge(t, own.Bytes()) == whole {
				// A kernel that is short of memory may have given fewer huge pages, but the
				// receiver has as many as the maker.
				require.Equal(t, whole, huge(t, peer.Bytes()))
			}
			for i := 0; i < bytes; i += 1000 {
				require.Zero(t, peer.Bytes()[i])
				own.Bytes()[i] = byte(i / 1000)
			}
			own.Bytes()[bytes-1] = 77
			for i := 0; i < bytes-1000; i += 1000 {
				require.Equal(t, byte(i/1000), peer.Bytes()[i])
			}
			require.EqualValues(t, 77, peer.Bytes()[bytes-1])
			require.NoError(t, own.Free())
			require.NoError(t, peer.Free())
		}
	}
	require.Equal(t, before, InUse())
}

// TestAlignedMappingLeavesNothing checks that nothing stays mapped of the addresses that were
// reserved to find an aligned place.
func TestAlignedMappingLeavesNothing(t *testing.T) {
	mappings := func() int {
		text, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		n := 0
		for _, c := range text {
			if c == '\n' {
				n++
			}
		}
		return n
	}
	before := mappings()
	for range 50 {
		s, err := NewSegment("goccl-test", hugeBytes+1)
		require.NoError(t, err)
		require.NoError(t, s.Free())
	}
	require.Less(t, mappings(), before+20) // the runtime maps too, but not fifty times
}

func TestMapSharedRefusals(t *testing.T) {
	for _, bytes := range []int{4096, hugeBytes} {
		_, err := mapShared(-1, bytes, unix.PROT_READ, 0)
		require.ErrorIs(t, err, unix.EBADF)
	}
}

func TestTryNode(t *testing.T) {
	err := tryNode(0)
	if err == nil {
		require.ErrorIs(t, tryNode(1<<10-1), unix.EINVAL, "there are fewer nodes")
		return
	}
	t.Logf("memory of a node cannot be asked for here: %v", err)
}

func TestPopulateKeepsContents(t *testing.T) {
	s, err := newSegment("goccl-test", hugeBytes, placement{node: -1})
	require.NoError(t, err)
	defer s.Free()
	s.memory[hugeBytes-1] = 5
	require.NoError(t, populate(s.fd, 0, s.memory))
	require.EqualValues(t, 5, s.memory[hugeBytes-1])
}
