package member

import "slices"

// Quorum says which part of a group may go on without the rest: a positive number means any part of
// at least so many ranks.
type Quorum int

const (
	// Majority lets at most one part of a group go on, however the network is cut: one with more
	// than half of the ranks that may live, or with half of them and among these the lowest. Ranks
	// that are known to be dead do not count. Those that are only silent do, also where the caller
	// leaves them out: they may live.
	Majority Quorum = 0
	// Any lets every part go on, so that a group whose network is cut becomes several.
	Any Quorum = 1
)

// Allows reports whether the part of a group of so many ranks that has settled which ones it has
// lost may go on without them. dead lists those of the lost that are known to be dead.
func (q Quorum) Allows(ranks int, lost, dead []int) bool {
	left := ranks - len(lost)
	if q != Majority {
		return left >= int(q)
	}
	living := ranks - len(dead)
	if 2*left != living {
		return 2*left > living
	}
	lowest := 0
	for slices.Contains(dead, lowest) {
		lowest++
	}
	return !slices.Contains(lost, lowest)
}

// Silent returns those of the lost ranks that are not known to be dead.
func Silent(lost, dead []int) []int {
	return slices.DeleteFunc(slices.Clone(lost), func(rank int) bool { return slices.Contains(dead, rank) })
}
