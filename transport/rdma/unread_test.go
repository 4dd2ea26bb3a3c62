package rdma

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// unread has x send fragments that y does not take from the adapter, and closes both ends of the
// link.
func unread(t *testing.T, x, y end) {
	ch := x.link.Channel(0)
	for range fewSlots { // the peer may not have told of as many from before
		require.NoError(t, x.await("no credit", func() bool { return ch.Reserve(8) != nil }))
		ch.Commit(8, &transport.Meta{7})
	}
	require.NoError(t, x.link.Close())
	require.NoError(t, y.link.Close())
	require.Eventually(t, func() bool {
		x.f.Poll()
		return x.pairTo(y).openLinks() == 0 && y.pairTo(x).openLinks() == 0
	}, hang, 100*time.Microsecond, "the links stay")
}

// TestUnreadAgain opens a link with the number of one whose fragments nobody has taken: they are
// not the new link's.
func TestUnreadAgain(t *testing.T) {
	x, y := two(t, network(t, verbstest.Options{Delay: -1}), 1, nil)
	for i := range 5 {
		number := y.link.(*link).base
		unread(t, x, y)
		x.link, y.link = joined(t, x.f, y.f, 1)
		require.Equal(t, number, y.link.(*link).base)
		y.f.Poll()
		_, m, ok := y.link.Channel(0).Peek()
		require.False(t, ok, "meta %v", m)
		require.NoError(t, talk(x, y, 1, uint64(i), 20))
	}
}

// TestUnreadPolled has a thread take them while the memory of the link goes.
func TestUnreadPolled(t *testing.T) {
	x, y := two(t, network(t, verbstest.Options{Delay: -1}), 1, nil)
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
			y.f.Poll()
			runtime.Gosched()
		}
	}()
	defer func() {
		over.Store(true)
		<-done
	}()
	for range 20 {
		unread(t, x, y)
		x.link, y.link = joined(t, x.f, y.f, 1)
	}
}
