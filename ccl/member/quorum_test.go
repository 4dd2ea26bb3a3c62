package member

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllows(t *testing.T) {
	none := []int{}
	for _, tt := range []struct {
		quorum     Quorum
		ranks      int
		lost, dead []int
		want       bool
	}{
		{Majority, 4, none, none, true},
		{Majority, 4, []int{2, 3}, none, true},  // half, with the lowest
		{Majority, 4, []int{0, 1}, none, false}, // half, without it
		{Majority, 4, []int{1, 2}, none, true},  // the lowest alone decides
		{Majority, 4, []int{0}, none, true},     // 3 of 4
		{Majority, 4, []int{1, 2, 3}, none, false},
		{Majority, 3, []int{1}, none, true},
		{Majority, 3, []int{0, 1}, none, false},
		{Majority, 1, none, none, true},
		{Majority, 2, []int{0}, none, false},
		{Majority, 2, []int{0}, []int{0}, true}, // whoever is dead does not count
		{Majority, 4, []int{0, 1, 2}, []int{0, 1, 2}, true},
		{Majority, 4, []int{0, 1, 2}, []int{1, 2}, false}, // 1 of the 2 that may live, and not the lowest
		{Majority, 4, []int{0, 1, 3}, []int{0, 1}, true},  // the lowest that may live
		{Majority, 5, []int{1, 3}, []int{1}, true},        // 3 of 4
		{Majority, 5, []int{0, 1, 2, 4}, []int{1}, false},
		{Any, 4, []int{0, 1, 2}, none, true},
		{2, 4, []int{0, 1, 2}, none, false},
		{2, 4, []int{0, 1}, none, true},
		{3, 4, []int{0, 1}, []int{0, 1}, false}, // a number means what it says
	} {
		require.Equal(t, tt.want, tt.quorum.Allows(tt.ranks, tt.lost, tt.dead), "%+v", tt)
	}
	require.Equal(t, []int{0, 4}, Silent([]int{0, 1, 2, 4}, []int{1, 2}))
}

// What becomes of a rank.
const (
	inA = iota
	inB
	elsewhere // alive: stopped, left out by its caller, or in another part
	dead
	states
)

// everyCut calls each with every way to cut a group, every set of its ranks that are dead, and what
// each of two parts knows of them: a bit of known for each rank, for B behind those for A.
func everyCut(ranks int, each func(of []int, known int)) {
	of := make([]int, ranks)
	for {
		died := 0 // a bit for each dead rank
		for rank, state := range of {
			if state == dead {
				died |= 1 << rank
			}
		}
		for known := range 1 << (2 * ranks) {
			if known&^(died|died<<ranks) == 0 {
				each(of, known)
			}
		}
		next := 0
		for ; next < ranks; next++ {
			if of[next] = (of[next] + 1) % states; of[next] > 0 {
				break
			}
		}
		if next == ranks {
			return
		}
	}
}

// TestOnePartAtMost: however a group of up to 5 ranks is cut, one part at most goes on.
func TestOnePartAtMost(t *testing.T) {
	for ranks := 2; ranks <= 5; ranks++ {
		everyCut(ranks, func(of []int, known int) {
			lost, proven := lostBy(of, inA, known)
			a := len(lost) < ranks && Majority.Allows(ranks, lost, proven)
			lost, proven = lostBy(of, inB, known>>ranks)
			if a && len(lost) < ranks && Majority.Allows(ranks, lost, proven) {
				t.Fatalf("both parts of %v go on, with %b", of, known)
			}
		})
	}
}

// TestOnePartOfAGroupThatGrows cuts groups that grow just when some ranks have the larger group,
// and others of the former one do not know of it: of those that have it (inA) and those that do not
// (inB) only one part goes on.
func TestOnePartOfAGroupThatGrows(t *testing.T) {
	for former := 1; former <= 4; former++ {
		for ranks := former + 1; ranks <= 5; ranks++ {
			everyCut(ranks, func(of []int, known int) {
				lost, proven := lostBy(of, inA, known)
				grown := len(lost) < ranks && Majority.AllowsGrown(former, ranks, lost, proven, false)
				lost, proven = lostBy(of[:former], inB, known>>ranks)
				if grown && len(lost) < former && Majority.Allows(former, lost, proven) {
					t.Fatalf("both the group of %d and that of %d go on: %v, with %b", former, ranks, of, known)
				}
			})
		}
	}
	// Once it is known that all have the larger group, its majority is enough.
	lost := []int{1, 2, 3}
	require.False(t, Majority.AllowsGrown(4, 7, lost, nil, false))
	require.True(t, Majority.AllowsGrown(4, 7, lost, nil, true))
	require.True(t, Majority.AllowsGrown(4, 7, lost, lost, false), "they are dead")
	require.True(t, Any.AllowsGrown(4, 7, lost, nil, false))
}

// lostBy returns the ranks that a part has lost, and those of them that it knows to be dead.
func lostBy(of []int, part, known int) (lost, proven []int) {
	for rank, state := range of {
		if state != part {
			lost = append(lost, rank)
			if known>>rank&1 == 1 {
				proven = append(proven, rank)
			}
		}
	}
	return lost, proven
}

// TestSomebodyGoesOn: where the dead are known, all others go on, however many have died.
func TestSomebodyGoesOn(t *testing.T) {
	for ranks := 1; ranks <= 6; ranks++ {
		for set := range 1<<ranks - 1 {
			var died []int
			for rank := range ranks {
				if set>>rank&1 == 1 {
					died = append(died, rank)
				}
			}
			require.True(t, Majority.Allows(ranks, died, died), fmt.Sprint(ranks, died))
		}
	}
}
