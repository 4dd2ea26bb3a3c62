package park

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMoveKeepsTheAffinity(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	defer unix.SchedSetaffinity(0, &before)
	for _, core := range online() {
		require.Equal(t, before.Count() >= len(online()), move(core))
		require.NoError(t, unix.SchedGetaffinity(0, &after))
		require.Equal(t, before, after)
	}
	require.Zero(t, testing.AllocsPerRun(10, func() { move(online()[0]) }))
}

func TestWhoIsBoundStays(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	defer unix.SchedSetaffinity(0, &before)
	if len(online()) < 2 {
		t.Skip("one core")
	}
	core := here()
	one.Set(core)
	require.NoError(t, unix.SchedSetaffinity(0, &one))
	require.Equal(t, core, here())
	for _, other := range online() {
		require.False(t, move(other))
	}
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, one, after)
}
