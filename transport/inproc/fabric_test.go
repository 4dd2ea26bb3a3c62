package inproc_test

import (
	"context"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		doorbell := park.NewDoorbell()
		f := inproc.New(doorbell)
		return transporttest.Pair{A: f, B: f, DoorbellA: doorbell, DoorbellB: doorbell}
	}, transporttest.Options{})
}

func session(rank, peer, channels int) transport.Session {
	return transport.Session{ID: [16]byte{1}, Rank: rank, Peer: peer, Channels: channels}
}

func TestReachesOnlyItself(t *testing.T) {
	a, b := inproc.New(park.NewDoorbell()), inproc.New(park.NewDoorbell())
	defer a.Close()
	defer b.Close()
	require.True(t, a.Reaches(a.Address()))
	require.False(t, a.Reaches(b.Address()))
	_, err := a.Connect(context.Background(), b.Address(), session(0, 1, 1))
	require.ErrorIs(t, err, fault.NotSupported)
}

func TestRefusals(t *testing.T) {
	f := inproc.New(park.NewDoorbell())
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, s := range []transport.Session{
		session(0, 1, 0), session(0, 1, 9), session(0, 0, 1), session(-1, 0, 1), session(0, -1, 1)} {
		_, err := f.Connect(ctx, f.Address(), s)
		require.ErrorIs(t, err, fault.Invalid, "%+v", s)
	}
	// The ends ask for different numbers of channels: both get the error.
	first := make(chan error, 1)
	go func() {
		_, err := f.Connect(ctx, f.Address(), session(0, 1, 2))
		first <- err
	}()
	_, err := f.Connect(ctx, f.Address(), session(1, 0, 3))
	require.ErrorIs(t, err, fault.Mismatch)
	require.ErrorIs(t, <-first, fault.Mismatch)
}

func TestCloseEndsWaiting(t *testing.T) {
	f := inproc.New(park.NewDoorbell())
	waiting := make(chan error, 1)
	go func() {
		_, err := f.Connect(context.Background(), f.Address(), session(0, 1, 1))
		waiting <- err
	}()
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, f.Close())
	require.ErrorIs(t, <-waiting, fault.Closed)
	_, err := f.Connect(context.Background(), f.Address(), session(0, 1, 1))
	require.ErrorIs(t, err, fault.Closed)
}

func TestCancelled(t *testing.T) {
	f := inproc.New(park.NewDoorbell())
	defer f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := f.Connect(ctx, f.Address(), session(0, 1, 1))
	require.ErrorIs(t, err, fault.Aborted)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "rank 1")
}

// TestPoolComesBack opens and closes more links with unread fragments than the pool has slots, and
// checks that all memory is released.
func TestPoolComesBack(t *testing.T) {
	before := mem.InUse()
	f := inproc.New(park.NewDoorbell())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var m transport.Meta
	for range 40 {
		other := make(chan transport.Link, 1)
		go func() {
			l, _ := f.Connect(ctx, f.Address(), session(0, 1, 1))
			other <- l
		}()
		l, err := f.Connect(ctx, f.Address(), session(1, 0, 1))
		require.NoError(t, err)
		for range 8 {
			require.Len(t, l.Channel(0).Reserve(1<<20), 128<<10)
			l.Channel(0).Commit(128<<10, &m)
		}
		require.NoError(t, l.Close())
		require.NoError(t, (<-other).Close())
	}
	require.NoError(t, f.Close())
	require.Equal(t, before, mem.InUse())
}
