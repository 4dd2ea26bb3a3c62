//go:build cgo

package exports_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/goccl/goccl/cabi/exports"
	"github.com/goccl/goccl/cabi/exports/fromc"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/pgbackend"
)

// both makes two ranks run do at the same time.
func both(t testing.TB, ranks [2]*fromc.Rank, do func(r *fromc.Rank) error) {
	t.Helper()
	var errs [2]error
	var group sync.WaitGroup
	for i, r := range ranks {
		group.Go(func() { errs[i] = do(r) })
	}
	group.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
}

// onDevices makes a group of two ranks on the devices of one machine. It returns the memory and the
// stream of each.
func onDevices(t *testing.T, machine *cudatest.Driver) (ranks [2]*fromc.Rank, at [2]uint64, streams [2]cuda.Stream) {
	t.Helper()
	t.Cleanup(pgbackend.SetDriver(func() (cuda.Driver, error) { return machine, nil }))
	for i, device := range []string{"cuda:1", "cuda:0"} {
		ctx, err := machine.Retain(1 - i)
		require.NoError(t, err)
		require.NoError(t, ctx.Enter(false))
		memory, err := ctx.Alloc(64 << 10)
		require.NoError(t, err)
		streams[i], err = ctx.NewStream(0)
		require.NoError(t, err)
		ctx.Leave()
		at[i] = uint64(memory.Ptr())
		ranks[i], err = fromc.OpenOn(i, 8, "", device)
		require.NoError(t, err)
	}
	both(t, ranks, func(r *fromc.Rank) error { return r.Join(ranks[1-r.Number()]) })
	return ranks, at, streams
}

func TestEnqueue(t *testing.T) {
	machine := cudatest.New(cudatest.Options{Devices: 2, Delay: -1, Stuck: -1})
	defer machine.Close()
	ranks, at, streams := onDevices(t, machine)
	machine.Hold(streams[0])
	var works []fromc.Work
	for range 3 {
		for i, r := range ranks {
			w, seq, err := r.Enqueue(at[i], 1000, streams[i].Native())
			require.NoError(t, err)
			require.NotZero(t, w)
			require.EqualValues(t, len(works)/2+1, seq)
			require.NoError(t, w.Join(streams[i].Native()))
			works = append(works, w)
		}
	}
	for _, w := range works {
		done, err := w.Wait(-1, time.Millisecond)
		require.False(t, done, "its stream is held")
		require.NoError(t, err)
		for _, poll := range []bool{false, true} {
			done, err = w.Look(poll)
			require.False(t, done)
			require.NoError(t, err)
		}
		require.NoError(t, w.Expedite())
		require.NoError(t, w.Watch())
		source, err := w.Source()
		require.NoError(t, err)
		require.Equal(t, -1, source)
	}
	machine.Release(streams[0])
	for _, w := range works {
		done, err := w.Wait(-1, 0)
		require.True(t, done)
		require.NoError(t, err)
		done, err = w.Look(false)
		require.True(t, done)
		require.NoError(t, err)
		require.NoError(t, w.Free())
	}
	for _, w := range works {
		_, wait := w.Wait(-1, 0)
		_, look := w.Look(true)
		_, source := w.Source()
		for _, err := range []error{w.Free(), wait, look, source, w.Expedite(), w.Watch(), w.Join(0)} {
			require.ErrorContains(t, err, "code 1", "the handle was given back")
		}
	}
	_, err := ranks[0].Start()
	require.ErrorContains(t, err, "use goccl_enqueue")
	both(t, ranks, (*fromc.Rank).Close)
	_, _, err = ranks[0].Enqueue(at[0], 1000, streams[0].Native())
	require.ErrorContains(t, err, "code 8")
	machine.Check(t)
}

// A wait that runs out changes nothing, whichever of its two times is over first.
func TestEnqueueOutlastsAWait(t *testing.T) {
	machine := cudatest.New(cudatest.Options{Devices: 2, Delay: -1, Stuck: -1})
	defer machine.Close()
	ranks, at, streams := onDevices(t, machine)
	w, _, err := ranks[0].Enqueue(at[0], 1000, streams[0].Native())
	require.NoError(t, err)
	for _, slice := range []time.Duration{0, 20 * time.Millisecond, time.Minute} {
		done, err := w.Wait(20*time.Millisecond, slice)
		require.False(t, done)
		require.ErrorContains(t, err, "code 3")
		require.ErrorContains(t, err, "the time of this wait is over")
	}
	done, err := w.Wait(time.Minute, time.Millisecond)
	require.False(t, done)
	require.NoError(t, err)
	other, _, err := ranks[1].Enqueue(at[1], 1000, streams[1].Native())
	require.NoError(t, err)
	for _, each := range []fromc.Work{w, other} {
		done, err = each.Wait(time.Minute, 0)
		require.True(t, done)
		require.NoError(t, err)
		require.NoError(t, each.Free())
	}
	both(t, ranks, (*fromc.Rank).Close)
	machine.Check(t)
}

// An operation without its peer ends the group for both ranks, and a work outlives its group.
func TestEnqueueTimeout(t *testing.T) {
	machine := cudatest.New(cudatest.Options{Devices: 2, Delay: -1, Stuck: -1})
	defer machine.Close()
	ranks, at, streams := onDevices(t, machine)
	w, _, err := ranks[0].Enqueue(at[0], 1000, streams[0].Native())
	require.NoError(t, err)
	require.NoError(t, ranks[1].Abort())
	done, err := w.Wait(-1, 0)
	require.True(t, done)
	require.ErrorContains(t, err, "code 7")
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, w.Join(streams[0].Native()), "code 7")
	both(t, ranks, (*fromc.Rank).Close)
	require.ErrorContains(t, w.Join(streams[0].Native()), "code 7")
	require.NoError(t, w.Free())
}

func TestEnqueueOnHost(t *testing.T) {
	var ranks [2]*fromc.Rank
	for i := range ranks {
		r, err := fromc.Open(i, 8, "")
		require.NoError(t, err)
		ranks[i] = r
	}
	both(t, ranks, func(r *fromc.Rank) error { return r.Join(ranks[1-r.Number()]) })
	_, _, err := ranks[0].Enqueue(0, 0, 0)
	require.ErrorContains(t, err, "code 2")
	require.ErrorContains(t, err, "use goccl_run or goccl_start")
	w, err := ranks[0].Start()
	require.NoError(t, err)
	require.ErrorContains(t, w.Join(0), "can only join works of goccl_enqueue")
	other, err := ranks[1].Start()
	require.NoError(t, err)
	for _, each := range []fromc.Work{w, other} {
		if each != 0 {
			_, err = each.Wait(-1, 0)
			require.NoError(t, err)
			require.NoError(t, each.Free())
		}
	}
	both(t, ranks, (*fromc.Rank).Close)
}
