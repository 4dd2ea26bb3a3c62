package shm

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// joinHearing is connect with a handler of rank 1.
func joinHearing(t *testing.T, a, b *Fabric, number int, handler func([]byte)) (la, lb *link) {
	t.Helper()
	sb := session(number, 1, 0, 1)
	sb.Control = handler
	x, y, ea, eb := both(t, a, b, session(number, 0, 1, 1), sb)
	require.NoError(t, ea)
	require.NoError(t, eb)
	return x.(*link), y.(*link)
}

// TestControlLeavesRoom has a handler wait while more messages are told than may wait: the
// connection carries few of them, and stays free for others.
func TestControlLeavesRoom(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	begun, wait := make(chan bool, 1), make(chan bool)
	release := sync.OnceFunc(func() { close(wait) })
	defer release() // before the fabrics are closed
	var calls atomic.Int32
	la, _ := joinHearing(t, a, b, 1, func([]byte) {
		if calls.Add(1) == 1 {
			begun <- true
			<-wait
		}
	})
	told := int32(0)
	for la.Tell(nil) {
		told++
	}
	<-begun
	p := la.process
	sent := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return p.told.Sent()
	}
	eventually(t, "as many as may be on their way", func() bool { return sent() >= mostUnheard })
	began := time.Now()
	for range 50 {
		p.send(newRefuse(1<<40, int(fault.Invalid), "of nothing"))
	}
	require.Less(t, time.Since(began), sendSpan)
	require.Less(t, sent(), mostUnheard+transport.MaxControl)
	require.NoError(t, la.Err())
	release()
	require.NoError(t, la.Close())
	require.NoError(t, a.Close())
	eventually(t, "all of them arrive", func() bool { return calls.Load() == told })
}

// TestControlNobodyListens sends messages for sessions that are not joined, and acknowledges what
// was not sent.
func TestControlNobodyListens(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	acknowledgement := heard{1}
	texts := make(chan string, 10)
	la, lb := joinHearing(t, a, b, 1, func(message []byte) { texts <- string(message) })
	p := la.process
	tell := func(serial uint64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		p.unsent++
		require.True(t, p.told.Add(&link{serial: serial, unsent: 1}, []byte("of nobody")))
	}
	for _, serial := range []uint64{0, 100, 1 << 63} {
		tell(serial)
	}
	p.send(&open{Serial: 100, Session: [16]byte{9}, Rank: 0, Peer: 1, Channels: 1}, a.page.FD())
	tell(100)
	require.True(t, la.Tell([]byte("mine")))
	require.Equal(t, "mine", <-texts)
	require.NoError(t, lb.Err())
	p.send(&acknowledgement)
	eventually(t, "the links end", func() bool { return la.Err() != nil && lb.Err() != nil })
	require.ErrorIs(t, lb.Err(), fault.Internal)
	require.ErrorContains(t, lb.Err(), "cannot have been handled")
	require.Empty(t, texts)
}
