package rdma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// inFlight returns how many fragments have not been released.
func (q *outQueue) inFlight() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sent - q.freed
}

// moved reports whether what is sent goes by a connection.
func (q *outQueue) moved() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
	return q.way != nil
}

// TestRoomAgain has more fragments than a connection has room for wait when it breaks, and then on
// the next connection: all of them arrive.
func TestRoomAgain(t *testing.T) {
	n := network(t, verbstest.Options{Delay: -1, Patience: time.Second})
	x, y := two(t, n, transport.MaxChannels, nil)
	ends := [][2]end{{x, y}}
	for range 3 {
		x.link, y.link = joined(t, x.f, y.f, transport.MaxChannels)
		ends = append(ends, [2]end{x, y})
	}
	fill := func() (sent int) {
		for _, e := range ends {
			for i := range transport.MaxChannels {
				for ch := e[0].link.Channel(i); ch.Reserve(8) != nil; sent++ {
					ch.Commit(8, &transport.Meta{})
				}
			}
		}
		return sent
	}
	empty := func(sent int) {
		t.Helper()
		require.Eventually(t, func() bool {
			x.f.Poll()
			y.f.Poll()
			for _, e := range ends {
				for i := range transport.MaxChannels {
					for ch := e[1].link.Channel(i); ; sent-- {
						if _, _, ok := ch.Peek(); !ok {
							break
						}
						ch.Release()
					}
				}
			}
			return sent == 0
		}, hang/3, 100*time.Microsecond, "fragments do not arrive")
		require.Eventually(t, func() bool {
			x.f.Poll()
			for _, e := range ends {
				for i := range transport.MaxChannels {
					if q := &e[0].link.(*link).channels[i].out; !q.leave() || q.inFlight() >= fewSlots {
						return false
					}
				}
			}
			return true
		}, hang/3, 100*time.Microsecond, "no credit")
	}
	for range 2 {
		n.Cut(0, 1)
		sent := fill()
		require.Greater(t, sent, posted)
		require.Eventually(t, func() bool {
			x.f.Poll()
			return !x.up(y)
		}, hang, time.Millisecond)
		n.Heal(0, 1)
		empty(sent)
		require.NoError(t, x.until("no connection", func() bool { return x.up(y) && y.up(x) }))
		empty(0)
		require.Eventually(t, func() bool {
			x.f.Poll()
			y.f.Poll()
			for _, e := range ends {
				for i := range transport.MaxChannels {
					if !e[0].link.(*link).channels[i].out.moved() {
						return false
					}
				}
			}
			return true
		}, hang/3, 100*time.Microsecond, "tcp is still the way")

		n.Cut(0, 1)
		sent = fill()
		require.Greater(t, sent, posted)
		require.False(t, ends[len(ends)-1][0].link.Flushed()) // some have no room
		n.Heal(0, 1)
		empty(sent)
		require.True(t, x.up(y))
	}
}
