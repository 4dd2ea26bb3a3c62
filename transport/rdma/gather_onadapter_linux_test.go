package rdma

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onAdapters returns a link between two processes in one, by an adapter of the machine.
func onAdapters(t testing.TB, channels int) (x, y end) {
	library := onAdapter(t)
	x.f, x.doorbell = process(t, library, nil)
	y.f, y.doorbell = process(t, library, nil)
	x.link, y.link = joined(t, x.f, y.f, channels)
	require.True(t, x.up(y) && y.up(x))
	return x, y
}

// TestGatherOnAdapter sends in place over real adapters, and registers memory 1,000 times.
func TestGatherOnAdapter(t *testing.T) {
	x, y := onAdapters(t, 2)
	require.NoError(t, inPlace(t, x, y, 2)(1, 100))
	for i := range 1000 {
		memory := make([]byte, leastSpan+i)
		require.NoError(t, x.f.Pin(memory))
		require.Len(t, *x.f.adapters()[0].spans.Load(), 2)
		require.NoError(t, x.f.Unpin(memory))
	}
}

// TestForkOnAdapter forks: whatever the process writes from then on, the adapter reads it.
func TestForkOnAdapter(t *testing.T) {
	x, y := onAdapters(t, 2)
	send := inPlace(t, x, y, 2)
	require.NoError(t, send(1, 20))
	child, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if child == 0 {
		for { // it is to hold its copies of the pages, and may use nothing of Go
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	require.Zero(t, errno)
	defer func() {
		require.NoError(t, unix.Kill(int(child), unix.SIGKILL))
		_, err := unix.Wait4(int(child), nil, 0, nil)
		require.NoError(t, err)
	}()
	require.NoError(t, send(2, 60))
	require.NoError(t, talk(x, y, 2, 3, 60))
}

// BenchmarkMessageOnAdapter sends a message, copied and in place, which the receiver copies out and
// answers.
func BenchmarkMessageOnAdapter(b *testing.B) {
	onAdapter(b)
	benchmarkMessages(b, func(b *testing.B) (x, y end) { return onAdapters(b, 1) })
}
