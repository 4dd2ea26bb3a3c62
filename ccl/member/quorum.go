package member

import "slices"

// Quorum says which part of a group may go on without the rest: a positive number means any part of
// at least that many ranks.
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

// Allows reports whether the part of a group of ranks that has settled which ones it has lost
// may go on without them. dead lists those of the lost that are known to be dead.
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

// AllowsGrown is Allows for a group that has grown: its first ranks, former many, were one before.
// former is 0 for a group that has not grown.
// known means that it is certain that all of these have become ranks of this group. Otherwise those
// that are lost may have missed that, and go on as the former group; so there has to be a majority
// of the former ranks, too.
func (q Quorum) AllowsGrown(former, ranks int, lost, dead []int, known bool) bool {
	allows := q.Allows(ranks, lost, dead)
	if q != Majority || known || former == 0 {
		return allows
	}
	return allows && q.Allows(former, below(former, lost), below(former, dead))
}

// below returns those of some ranks that are less than one.
func below(rank int, of []int) []int {
	return slices.DeleteFunc(slices.Clone(of), func(each int) bool { return each >= rank })
}

// Silent returns those of the lost ranks that are not known to be dead.
func Silent(lost, dead []int) []int {
	return slices.DeleteFunc(slices.Clone(lost), func(rank int) bool { return slices.Contains(dead, rank) })
}
