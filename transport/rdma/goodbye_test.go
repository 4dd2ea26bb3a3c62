package rdma

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestGoodbyeAfterCuts closes links right after their last fragments, while connections break and
// are made again: the peer takes all fragments before it learns of the goodbye.
func TestGoodbyeAfterCuts(t *testing.T) {
	const links, channels = 15, 2
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n := network(t, verbstest.Options{Seed: seed, Patience: 5 * time.Millisecond})
			x, y := two(t, n, channels, nil)
			over := make(chan struct{})
			cut := make(chan struct{})
			go func() {
				defer close(cut)
				random := rand.New(rand.NewPCG(seed, 2))
				for {
					select {
					case <-over:
						return
					case <-time.After(time.Duration(random.IntN(300)) * time.Millisecond):
					}
					if way := random.IntN(3); way == 0 {
						n.Cut(0, 1)
					} else {
						n.CutOneWay(way-1, 2-way)
					}
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
					n.Heal(0, 1)
				}
			}()
			random := rand.New(rand.NewPCG(seed, 3))
			for i := range uint64(links) {
				fragments := random.IntN(60)
				sent, received := make(chan error), make(chan error)
				for c := range channels {
					go func() { sent <- x.send(c, i, fragments) }()
					go func() { received <- y.receive(c, i, fragments) }()
				}
				for range channels {
					require.NoError(t, <-sent)
				}
				require.NoError(t, x.link.Close())
				for range channels {
					require.NoError(t, <-received)
				}
				left := func() bool { return errors.Is(y.link.Err(), fault.PeerLeft) }
				require.NoError(t, y.await("no goodbye", left))
				require.NoError(t, y.link.Close())
				x.link, y.link = joined(t, x.f, y.f, channels)
			}
			close(over)
			<-cut
		})
	}
}
