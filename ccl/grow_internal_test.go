package ccl

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// TestGrownButNotKnown has four ranks become seven. All know that all have; if that is taken from
// them, as by a cut at that moment, the newcomers with one rank are no majority: the other three
// may not know of them.
func TestGrownButNotKnown(t *testing.T) {
	const former, newcomers, limit = 4, 3, 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	opts := GroupOptions{Transport: "tcp"}
	node := func() *Node {
		n, err := NewNode(NodeOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { n.Close() })
		return n
	}
	each := func(ranks []int, f func(rank int)) {
		var group sync.WaitGroup
		for _, rank := range ranks {
			group.Go(func() { f(rank) })
		}
		group.Wait()
	}
	endpoints := make([]*Endpoint, former)
	addresses := make([][]byte, former)
	for rank := range former {
		var err error
		endpoints[rank], err = node().Open(Config{Name: "g", Rank: rank, Size: former, Timeout: limit, Options: opts})
		require.NoError(t, err)
		addresses[rank] = endpoints[rank].Address()
	}
	comms := make([]*Communicator, former+newcomers)
	errs := make([]error, len(comms))
	formers, all := []int{0, 1, 2, 3}, []int{0, 1, 2, 3, 4, 5, 6}
	each(formers, func(rank int) { comms[rank], errs[rank] = endpoints[rank].Join(ctx, addresses) })
	require.NoError(t, errors.Join(errs...))
	door, err := comms[0].Address()
	require.NoError(t, err)
	fresh := []*Node{node(), node(), node()}
	each(all, func(rank int) {
		if rank < former {
			comms[rank], errs[rank] = comms[rank].Grow(ctx, newcomers, limit)
		} else {
			comms[rank], errs[rank] = fresh[rank-former].Join(ctx, Config{Timeout: limit, Options: opts}, door)
		}
	})
	require.NoError(t, errors.Join(errs...))
	byRank := make([]*Communicator, len(comms))
	for _, c := range comms {
		require.Equal(t, former, c.origin.former)
		require.True(t, c.origin.whole, "rank %d", c.Rank())
		byRank[c.Rank()] = c
	}

	goOn := []int{0, 4, 5, 6}
	shrink := func() error {
		clear(errs)
		each(goOn, func(rank int) {
			var next *Communicator
			if next, _, errs[rank] = byRank[rank].Shrink(ctx, 1, 2, 3); next != nil {
				byRank[rank] = next
			}
		})
		return errors.Join(errs...)
	}
	for _, c := range byRank {
		c.origin.whole = false
	}
	err = shrink()
	for _, rank := range goOn {
		require.ErrorIs(t, errs[rank], fault.PeerLost, "rank %d", rank)
		require.ErrorContains(t, errs[rank], "no majority of the first 4 ranks is left here")
	}
	byRank[5].origin.whole = true // what one knows, all learn
	require.NoError(t, shrink())
	require.Equal(t, len(goOn), byRank[0].Size())
	require.Zero(t, byRank[0].origin.former, "it has not grown itself")
}
