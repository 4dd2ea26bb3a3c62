package pgbackend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// A newcomer joins by what a member says; without newcomers there is no group.
func TestGrowFrom(t *testing.T) {
	groups := world(t, 2, forever)
	invitation, err := groups[1].Invitation()
	require.NoError(t, err)
	grow := func(newcomers int, wait time.Duration) (larger []*Group, ended chan error) {
		ended = make(chan error, 3)
		for _, g := range groups {
			next := g.Empty(forever / 2)
			t.Cleanup(func() { next.Close() })
			larger = append(larger, next)
			go func() { ended <- next.GrowFrom(g, newcomers, wait) }()
		}
		return larger, ended
	}
	larger, ended := grow(1, 0)
	for _, g := range larger {
		require.NoError(t, <-ended)
		require.Zero(t, g.State().Size)
		require.False(t, g.State().Joined)
		require.ErrorIs(t, g.Run(&ccl.Call{Coll: dtype.Barrier}), fault.Closed)
	}
	newcomer, err := OpenNewcomer(Config{Timeout: forever / 2, Shim: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { newcomer.Close() })
	larger, ended = grow(3, 300*time.Millisecond)
	go func() { ended <- newcomer.Come(invitation) }()
	larger = append(larger, newcomer)
	for range larger {
		require.NoError(t, <-ended)
	}
	for rank, g := range larger {
		state := g.State()
		require.Equal(t, []int{rank, 3}, []int{state.Rank, state.Size})
		require.True(t, state.Joined)
		go func() { ended <- g.Run(&ccl.Call{Coll: dtype.Barrier}) }()
	}
	for range larger {
		require.NoError(t, <-ended)
	}
	require.ErrorIs(t, newcomer.Come(invitation), fault.Invalid, "it has members")
	require.ErrorIs(t, groups[0].Come(invitation), fault.Invalid)
	_, err = OpenNewcomer(Config{Timeout: forever, Device: "cuda:0"})
	require.ErrorIs(t, err, fault.NotSupported)
	_, err = OpenNewcomer(Config{})
	require.ErrorIs(t, err, fault.Invalid)
}

// Abort ends a GrowFrom that waits for others, and a Come that waits for a call of it.
func TestAbortEndsGrowth(t *testing.T) {
	groups := world(t, 2, forever)
	invitation, err := groups[0].Invitation()
	require.NoError(t, err)
	newcomer, err := OpenNewcomer(Config{Timeout: forever, Shim: "test"})
	require.NoError(t, err)
	next, ended := groups[0].Empty(forever), make(chan error, 2)
	go func() { ended <- next.GrowFrom(groups[0], 1, 0) }()
	go func() { ended <- newcomer.Come(invitation) }()
	for _, g := range []*Group{next, newcomer} {
		require.Eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.joining != nil
		}, forever, time.Millisecond)
		require.NoError(t, g.Abort("the test ends it"))
	}
	for range 2 {
		err := <-ended
		require.ErrorIs(t, err, fault.Aborted)
		require.ErrorContains(t, err, "the test ends it")
	}
}
