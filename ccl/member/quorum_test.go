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

// TestOnePartAtMost cuts groups of up to 5 ranks in every way, with every set of dead ranks, of
// which each part knows any subset.
func TestOnePartAtMost(t *testing.T) {
	for ranks, cuts := 2, states*states; ranks <= 5; ranks, cuts = ranks+1, cuts*states {
		for cut := range cuts {
			of, died := make([]int, ranks), 0 // died has a bit for each dead rank
			for rank, left := 0, cut; rank < ranks; rank, left = rank+1, left/states {
				if of[rank] = left % states; of[rank] == dead {
					died |= 1 << rank
				}
			}
			for known := range 1 << (2 * ranks) { // a bit for each rank and part
				if known&^(died|died<<ranks) != 0 {
					continue
				}
				goOn := []bool{goesOn(of, inA, known), goesOn(of, inB, known>>ranks)}
				if goOn[0] && goOn[1] {
					t.Fatalf("both parts of %v go on, with %b", of, known)
				}
			}
		}
	}
}

// TestOnePartOfAGroupThatGrows cuts groups that grow just when some ranks have the larger group,
// and others of the former one do not know of it: of those that have it (inA) and those that do not
// (inB) only one part goes on. What is known of the dead is as above.
func TestOnePartOfAGroupThatGrows(t *testing.T) {
	for former := 1; former <= 4; former++ {
		for ranks := former + 1; ranks <= 5; ranks++ {
			cuts := 1
			for range ranks {
				cuts *= states
			}
			for cut := range cuts {
				of, died := make([]int, ranks), 0
				for rank, left := 0, cut; rank < ranks; rank, left = rank+1, left/states {
					if of[rank] = left % states; of[rank] == dead {
						died |= 1 << rank
					}
				}
				for known := range 1 << (2 * ranks) {
					if known&^(died|died<<ranks) != 0 {
						continue
					}
					var lost, proven []int
					for rank, state := range of {
						if state != inA {
							lost = append(lost, rank)
							if known>>rank&1 == 1 {
								proven = append(proven, rank)
							}
						}
					}
					grown := len(lost) < ranks && Majority.AllowsGrown(former, ranks, lost, proven, false)
					if grown && goesOn(of[:former], inB, known>>ranks) {
						t.Fatalf("both the group of %d and that of %d go on: %v, with %b", former, ranks, of, known)
					}
				}
			}
		}
	}
	// Once it is known that all have the larger group, its majority is enough.
	lost := []int{1, 2, 3}
	require.False(t, Majority.AllowsGrown(4, 7, lost, nil, false))
	require.True(t, Majority.AllowsGrown(4, 7, lost, nil, true))
	require.True(t, Majority.AllowsGrown(4, 7, lost, lost, false), "they are dead")
	require.True(t, Any.AllowsGrown(4, 7, lost, nil, false))
}

func goesOn(of []int, part, known int) bool {
	var lost, proven []int
	for rank, state := range of {
		if state != part {
			lost = append(lost, rank)
			if known>>rank&1 == 1 {
				proven = append(proven, rank)
			}
		}
	}
	return len(lost) < len(of) && Majority.Allows(len(of), lost, proven)
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
