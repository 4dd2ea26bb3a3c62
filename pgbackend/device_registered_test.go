package pgbackend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// Registered memory of devices is given out as far as the options ask for it, and errors name the
// option.
func TestDeviceMemory(t *testing.T) {
	firstGroup(t)
	machine := cudatest.New(cudatest.Options{Delay: -1, Devices: 2})
	defer machine.Close()
	defer SetDriver(func() (cuda.Driver, error) { return machine, nil })()
	const options, size = "GOCCL_CUDA_REGISTERED=4M", 4 << 20

	for _, c := range []struct {
		options, device string
		code            fault.Code
		text            string
	}{
		{"", "cuda:0", fault.NotSupported, "GOCCL_CUDA_REGISTERED=0"},
		{"GOCCL_CUDA_REGISTERED=0", "cuda:0", fault.NotSupported, "GOCCL_CUDA_REGISTERED=0"},
		{"GOCCL_CUDA_REGISTERED=lots", "cuda:0", fault.Invalid, "GOCCL_CUDA_REGISTERED"},
		{"GOCCL_CUDA_REGISTERED=1T", "cuda:0", fault.System, "a smaller GOCCL_CUDA_REGISTERED"},
		{options, "cuda:2", fault.NotSupported, "there is no cuda:2"},
		{options, "", fault.Invalid, "a device has no name"},
	} {
		_, err := OpenArena(c.options, c.device)
		require.ErrorIs(t, err, c.code, "%+v", c)
		require.ErrorContains(t, err, c.text)
	}
	bytes, err := OpenArena(options, "cuda:0")
	require.NoError(t, err)
	require.Equal(t, size, bytes)
	defer func() {
		arenas.Lock()
		defer arenas.Unlock()
		require.NoError(t, arenas.of[0].Close())
		delete(arenas.of, 0)
		require.Empty(t, machine.Leaks())
		machine.Check(t)
	}()

	p, err := AllocOn(0, size/2+1)
	require.NoError(t, err)
	_, err = AllocOn(0, size/2)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "a larger GOCCL_CUDA_REGISTERED would help")
	require.NoError(t, FreeOn(0, p, 0))
	require.ErrorIs(t, FreeOn(0, p, 0), fault.Invalid)
	again, err := AllocOn(0, size)
	require.NoError(t, err)
	require.NoError(t, FreeOn(0, again, 0))
	require.ErrorIs(t, FreeOn(1, again, 0), fault.Invalid)
	_, err = AllocOn(1, 10)
	require.ErrorIs(t, err, fault.NotSupported)
}

// firstGroup lets the next group of the test be the first of its process, whose options count.
func firstGroup(t *testing.T) {
	set := func(n *ccl.Node) (former *ccl.Node) {
		process.Lock()
		defer process.Unlock()
		former, process.node = process.node, n
		return former
	}
	former := set(nil)
	t.Cleanup(func() { set(former) })
}

// Memory goes back when its stream has ended.
func TestDeviceMemoryIsFreedBehindItsStream(t *testing.T) {
	machine := cudatest.New(cudatest.Options{Delay: -1, Stuck: -1})
	defer machine.Close()
	defer SetDriver(func() (cuda.Driver, error) { return machine, nil })()
	_, err := OpenArena("GOCCL_CUDA_REGISTERED=4M", "cuda:0")
	require.NoError(t, err)
	arena := arenaOf(0)
	defer func() {
		arenas.Lock()
		defer arenas.Unlock()
		delete(arenas.of, 0)
		require.NoError(t, arena.Close())
	}()
	ctx, err := machine.Retain(0)
	require.NoError(t, err)
	require.NoError(t, ctx.Enter(false))
	stream, err := ctx.NewStream(0)
	require.NoError(t, err)
	ctx.Leave()
	p, err := AllocOn(0, 4<<20)
	require.NoError(t, err)
	machine.Hold(stream)
	require.NoError(t, ctx.Enter(false))
	require.NoError(t, stream.Copy(p+cuda.Ptr(2<<20), p, 2<<20))
	ctx.Leave()
	freed := make(chan error)
	go func() { freed <- FreeOn(0, p, stream.Native()) }()
	machine.Settle()
	select {
	case err := <-freed:
		require.Fail(t, "the stream has not ended", "%v", err)
	default:
	}
	require.Equal(t, 4<<20, arena.InUse())
	machine.Release(stream)
	require.NoError(t, <-freed)
	require.Zero(t, arena.InUse())
	require.NoError(t, ctx.Enter(false))
	require.NoError(t, stream.Destroy())
	ctx.Leave()
	require.NoError(t, ctx.Release())
}
