package rdma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestCloseBroken closes a fabric whose connection has just broken: what goes by tcp arrives,
// although no thread of the process polls any more.
func TestCloseBroken(t *testing.T) {
	n := network(t, verbstest.Options{Delay: -1, Patience: 20 * time.Millisecond})
	x, y := two(t, n, 2, nil)
	require.NoError(t, talk(x, y, 2, 1, 20))
	n.Cut(0, 1)
	sent := 0
	for i := range 2 {
		ch := x.link.Channel(i)
		for b := ch.Reserve(60000); b != nil; b = ch.Reserve(60000) {
			ch.Commit(len(b), &transport.Meta{})
			sent++
		}
	}
	done := make(chan time.Duration)
	go func() {
		begun := time.Now()
		x.f.Close()
		done <- time.Since(begun)
	}()
	got := 0
	take := func() bool {
		before := got
		for i := range 2 {
			for ch := y.link.Channel(i); ; got++ {
				if _, _, ok := ch.Peek(); !ok {
					break
				}
				ch.Release()
			}
		}
		return got > before
	}
	require.NoError(t, y.await("no goodbye", func() bool { return !take() && y.link.Err() != nil && !take() }))
	require.Equal(t, sent, got)
	require.Less(t, <-done, 4*time.Second)
}
