package park

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func seatsOn(cores []int, at ...int) *Seats {
	s := &Seats{cores: cores, taken: make([]int, len(cores)), places: make([]int, len(at)), gap: leastGap}
	for rank, core := range at {
		s.Put(rank, core)
	}
	return s
}

func TestRanksSpread(t *testing.T) {
	for _, c := range []struct {
		cores, at, want []int
	}{
		{[]int{0, 1}, []int{0, 1, 0, 1}, []int{0, 1, 0, 1}},
		{[]int{0, 1}, []int{0, 0, 0, 1}, []int{0, 0, 1, 1}},
		{[]int{0, 1}, []int{1, 1, 1, 1}, []int{1, 1, 0, 0}},
		{[]int{0, 1}, []int{1, 1, 0}, []int{1, 1, 0}},
		{[]int{2, 5, 7}, []int{5, 5, 5, 5, 5, 5}, []int{5, 5, 7, 2, 7, 2}},
		{[]int{2, 5, 7}, []int{5, 5, 5, 2}, []int{5, 5, 7, 2}},
	} {
		s := seatsOn(c.cores, c.at...)
		require.True(t, s.spread())
		for rank, core := range c.want {
			require.Equal(t, core, s.cores[s.places[rank]], "rank %d of %v", rank, c.at)
		}
	}
}

func TestRanksSpreadFromAnywhere(t *testing.T) {
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 0))
		cores := dice.Perm(2 + dice.IntN(6))
		at := make([]int, len(cores)+1+dice.IntN(20))
		for r := range at {
			at[r] = cores[dice.IntN(len(cores))]
		}
		s := seatsOn(cores, at...)
		require.True(t, s.spread())
		least, most := len(at), 0
		for _, n := range s.taken {
			least, most = min(least, n), max(most, n)
		}
		require.LessOrEqual(t, most-least, 1)
		mates := 0
		for r := range at {
			mates += 1 + len(s.Mates(r, nil))
		}
		squares := 0
		for _, n := range s.taken {
			squares += n * n
		}
		require.Equal(t, squares, mates)
	}
}

func TestWhoIsNotKnownStays(t *testing.T) {
	s := seatsOn([]int{0, 1}, 0, 0, 0, 9)
	require.False(t, s.Settle(2), "rank 3 is on a core that there is not")
	s.Put(3, 1)
	s.next = now() + int64(1<<40)
	require.False(t, s.Settle(2), "it has just moved")
	s.Put(2, 0)
	require.True(t, s.Settle(1), "it is not this rank's to move")
	require.Equal(t, []int{0}, s.Mates(1, nil))
}

func TestWithCoresForAllNobodyMoves(t *testing.T) {
	require.Nil(t, NewSeats(1))
	require.Nil(t, NewSeats(len(online())))
}
