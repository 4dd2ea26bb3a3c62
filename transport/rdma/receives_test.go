package rdma

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// counts returns how many receives an adapter has, and how often all of them were taken.
func (a *adapter) counts() (goal, short int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.goal, a.short
}

// TestReceivesShort has an adapter that allows few entries of a receive queue: all fragments
// arrive, and the shortage is counted, and said.
func TestReceivesShort(t *testing.T) {
	n := network(t, verbstest.Options{Receive: 4, Delay: -1})
	var said lines
	ends := linked(t, n, heard(&said), 4, 4)
	require.NoError(t, talkAll(ends, 1, 200))
	goal, short := ends[0][1].f.adapters()[0].counts()
	require.Equal(t, 4, goal)
	require.Positive(t, short)
	require.Contains(t, said.String(), "all 4 entries of its shared receive queue were in use, 1 times so far")
	require.NotContains(t, said.String(), "tcp takes over")
}

// TestReceivesGrow has more channels than the first entries are for: there are as many as these
// need, up to what the adapter allows, or what connections leave.
func TestReceivesGrow(t *testing.T) {
	for _, c := range []struct{ allows, want int }{{0, 20 * 8 * eachReceives}, {4500, 4500}} {
		n := network(t, verbstest.Options{Receive: c.allows, Delay: -1})
		channels := slices.Repeat([]int{transport.MaxChannels}, 20)
		var said lines
		ends := linked(t, n, heard(&said), channels...)
		settle(t, ends, only(0))
		require.NoError(t, talkAll(ends, 1, 5))
		for _, e := range ends[0] {
			goal, short := e.f.adapters()[0].counts()
			require.Equal(t, c.want, goal)
			require.Zero(t, short)
			a := e.f.adapters()[0]
			e.f.manager.call(func() { require.GreaterOrEqual(t, a.room(), 128) })
		}
		require.NotContains(t, said.String(), "WARN")
	}
}
