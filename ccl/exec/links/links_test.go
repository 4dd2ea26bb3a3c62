package links

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

type fakeLink struct {
	transport.Link
	network, open bool
	err           error
	left          []byte
	notified      int
}

func (l *fakeLink) Channel(i int) transport.Channel {
	if i == 1 {
		return &fakeGatherer{}
	}
	return nil
}

func (l *fakeLink) State() transport.LinkState { return transport.LinkState{Network: l.network} }
func (l *fakeLink) Open() bool                 { return l.open }
func (l *fakeLink) Err() error                 { return l.err }
func (l *fakeLink) Flushed() bool              { return l.open }
func (l *fakeLink) Leave(why []byte) error     { l.left = why; return nil }
func (l *fakeLink) Window() []byte             { return nil }
func (l *fakeLink) Arena() []byte              { return nil }
func (l *fakeLink) Shared() ([]byte, []int)    { return nil, nil }
func (l *fakeLink) Notify()                    { l.notified++ }

// fakeGatherer needs two tries to let go of memory.
type fakeGatherer struct {
	transport.Channel
	tries int
}

func (g *fakeGatherer) Gather([]byte, *transport.Meta) (int, bool) { return 0, false }
func (g *fakeGatherer) Sent() bool                                 { return false }
func (g *fakeGatherer) Withdraw() bool                             { g.tries++; return g.tries > 1 }

func TestSet(t *testing.T) {
	near, far := &fakeLink{open: true}, &fakeLink{network: true}
	var s Set
	require.ErrorIs(t, s.Open(1, []transport.Link{near, far, far}, 2), fault.Invalid, "a link to itself")
	require.ErrorIs(t, s.Open(1, []transport.Link{nil, nil, far}, 2), fault.Invalid, "none to rank 0")
	require.NoError(t, s.Open(1, []transport.Link{near, nil, far}, 2))
	require.Equal(t, 3, s.Size())
	require.Nil(t, s.Gatherer(0, 0))
	require.Same(t, s.Channel(0, 1), s.Gatherer(0, 1))
	require.False(t, s.Network[0])
	require.True(t, s.Network[2])

	require.True(t, s.Closed())
	require.False(t, s.Unopened[0])
	require.False(t, s.Connect(2), "it is not there yet")
	require.False(t, s.Flushed())
	far.open = true
	require.True(t, s.Connect(2))
	require.False(t, s.Connect(2), "it was there before")
	require.False(t, s.Closed())
	require.True(t, s.Flushed())

	require.NoError(t, s.End(1), "this rank itself")
	require.NoError(t, s.End(2))
	far.err = errors.New("it broke")
	require.Equal(t, far.err, s.End(2))
	require.NoError(t, s.End(2), "that is noted once")
	require.True(t, s.Lost[2])

	s.Notify()
	require.Equal(t, 1, near.notified)
	polls := 0
	s.Withdraw(func() { polls++ })
	require.Zero(t, polls)
	s.Leave([]byte("why"))
	require.Equal(t, "why", string(far.left))
}
