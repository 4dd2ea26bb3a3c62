package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/park"
)

// seated returns the windows of a group of ranks that outnumber the cores.
func seated(t *testing.T, ranks int) *Set {
	w := &Set{ranks: make([]Rank, ranks), placement: placement{seats: park.NewSeats(ranks)}}
	if w.seats == nil {
		t.Skip("here threads cannot be told to move, or there are cores for all ranks")
	}
	for r := range w.ranks {
		w.ranks[r] = windowOf(new(page), nil)
		w.here = append(w.here, r)
	}
	return w
}

func TestRanksSayWhereTheyRun(t *testing.T) {
	w := seated(t, 1000)
	w.Begun = 7 * seatEvery
	for r := range w.ranks[1:] {
		w.Settle(r + 1)
	}
	w.Begun += seatEvery / 2
	w.Settle(0)
	require.False(t, w.seated, "rank 0 has not said it")
	w.Begun -= seatEvery / 2
	w.Settle(0)
	w.Begun += seatEvery / 2
	w.Settle(0)
	require.True(t, w.seated, "the last ranks move, not the first")
	require.NotEmpty(t, w.mates)
	w.Begun += seatEvery
	w.Settle(0)
	require.False(t, w.seated, "that was said before the last time")
}

func TestWhoKeepsItsCore(t *testing.T) {
	w := &Set{ranks: make([]Rank, 4), Begun: 5}
	for r := range w.ranks {
		w.ranks[r] = windowOf(new(page), nil)
	}
	say := func(rank, signals int) { w.Record(rank).word.Store(w.Word(signals)) }
	say(0, 1)
	require.False(t, w.MaySpin(0, 1), "nobody knows where the others are")
	w.seated, w.mates = true, []int{2}
	require.False(t, w.MaySpin(0, 2), "who is waited for needs this core")
	require.False(t, w.MaySpin(0, 1), "rank 2 is behind, and needs this core")
	say(2, 1)
	require.True(t, w.MaySpin(0, 1))
	say(0, 2)
	require.False(t, w.MaySpin(0, 1), "rank 2 is behind again")
	say(2, 2)
	require.True(t, w.MaySpin(0, 1))
	w.Begun++
	require.False(t, w.MaySpin(0, 1), "rank 2 has not begun, nor has rank 0 said anything")
	say(2, 1)
	for range mostVain {
		require.True(t, w.MaySpin(0, 1))
		w.SpunInVain()
	}
	require.False(t, w.MaySpin(0, 1), "the others are not where they were")
}
