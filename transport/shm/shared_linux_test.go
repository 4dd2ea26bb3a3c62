package shm

import (
	"os"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// processAt returns one side of the connection between two fabrics.
func processAt(f, to *Fabric) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.processes[to.self.ID]
}

// TestWrongNumberShared sends opens with other descriptors than they say. Each ends the connection,
// and leaves no descriptor behind.
func TestWrongNumberShared(t *testing.T) {
	for _, tt := range []struct {
		name   string
		open   open
		fds    int
		reason string
	}{
		{"one short", open{Share: 2}, 2, "with 2 descriptors"},
		{"one too many", open{Share: 1}, 3, "with 3 descriptors"},
		{"none said", open{}, 2, "with 2 descriptors"},
		{"none with a window", open{Window: 4096, Share: 1}, 2, "with 2 descriptors"},
		{"more than may be", open{Share: transport.MaxShare + 1}, 2 + transport.MaxShare, "shares 6 descriptors"},
		{"far too many", open{Share: 9}, 10, "oversized"},
		{"negative", open{Share: 1<<32 - 1}, 1, "shares 4294967295 descriptors"},
		{"long note", open{Length: transport.MaxNote + 1}, 1, "a note of 257 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := holdingsNow(t)
			a, b := newFabric(t), newFabric(t)
			la, lb := connect(t, a, b, 1, 1)
			null, err := os.Open(os.DevNull)
			require.NoError(t, err)
			defer null.Close()
			var fds []int
			for range tt.fds {
				fds = append(fds, int(null.Fd()))
			}
			tt.open.Serial = 77
			require.NoError(t, processAt(b, a).send(&tt.open, fds...))
			eventually(t, "the links go on", func() bool { return la.Err() != nil && lb.Err() != nil })
			require.ErrorIs(t, la.Err(), fault.Internal)
			require.ErrorContains(t, la.Err(), tt.reason)
			require.NoError(t, la.Close())
			require.NoError(t, lb.Close())
			connect(t, a, b, 2, 1)
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			null.Close()
			eventually(t, "descriptors stay", func() bool { return holdingsNow(t).descriptors <= before.descriptors+1 })
		})
	}
}

// TestSharedIsNotTouched shares the end of a pipe that has something to read, and a file that can
// only be named. Both arrive as they were.
func TestSharedIsNotTouched(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	_, err := unix.Write(pipe[1], []byte("unread"))
	require.NoError(t, err)
	require.NoError(t, unix.Close(pipe[1]))
	place, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	sa, sb := session(1, 0, 1, 1), session(1, 1, 0, 1)
	sa.Share = []int{pipe[0], place}
	la, lb, ea, eb := both(t, a, b, sa, sb)
	require.NoError(t, ea)
	require.NoError(t, eb)
	require.NoError(t, unix.Close(pipe[0])) // Connect has returned
	require.NoError(t, unix.Close(place))
	_, fds := lb.(transport.Lender).Shared()
	require.Len(t, fds, 2)
	defer closeAll(fds)
	text := make([]byte, 20)
	n, err := unix.Read(fds[0], text)
	require.NoError(t, err)
	require.Equal(t, "unread", string(text[:n]))
	var root, got unix.Stat_t
	require.NoError(t, unix.Stat("/", &root))
	require.NoError(t, unix.Fstat(fds[1], &got))
	require.Equal(t, root.Ino, got.Ino)
	require.NoError(t, la.Close())
	require.NoError(t, lb.Close())
}

// TestUnsharableRefuses has a rank share a descriptor that is not open after the peer has called
// Connect: the peer is told, and the connection goes on.
func TestUnsharableRefuses(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	la, lb := connect(t, a, b, 1, 1)
	waiting := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := b.Connect(ctx, a.Address(), session(2, 1, 0, 1))
		waiting <- err
	}()
	eventually(t, "the open of the peer", func() bool {
		p := processAt(a, b)
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(p.arrivals) == 1
	})
	s := session(2, 0, 1, 1)
	s.Share = []int{1 << 30}
	_, err := a.Connect(ctx, b.Address(), s)
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "cannot share descriptors [1073741824]")
	err = <-waiting
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "refuses this group")
	send(t, la.Channel(0), 10, 1)
	receive(t, lb.Channel(0), 10, 1)
	require.NoError(t, la.Err())
}

// TestSharedByTheDead has links with descriptors that nobody has asked for when the peer's
// connection ends: they can be asked for until the link is closed.
func TestSharedByTheDead(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	var links []transport.Link
	connect(t, a, b, 1, 1)
	before := holdingsNow(t).descriptors
	for i := range 2 {
		sa, sb := session(2+i, 0, 1, 1), session(2+i, 1, 0, 1)
		sa.Share, sa.Note = []int{int(null.Fd())}, []byte("kept")
		_, lb, ea, eb := both(t, a, b, sa, sb)
		require.NoError(t, ea)
		require.NoError(t, eb)
		links = append(links, lb)
	}
	processAt(a, b).close()
	eventually(t, "the links go on", func() bool { return links[0].Err() != nil && links[1].Err() != nil })
	require.NoError(t, links[0].Close())
	note, fds := links[0].(transport.Lender).Shared()
	require.Equal(t, "kept", string(note))
	require.Empty(t, fds)
	_, fds = links[1].(transport.Lender).Shared()
	require.Len(t, fds, 1)
	closeAll(fds)
	require.NoError(t, links[1].Close())
	eventually(t, "descriptors stay", func() bool { return holdingsNow(t).descriptors <= before })
}
