package algo

import "math/bits"

// A fold turns any number of ranks into a power of two: the first 2·extra ranks are pairs, and one
// rank of each pair (the active rank) acts for both. Seats number the p = 2^log active ranks in
// rank order.
type fold struct{ p, log, extra int }

// foldRanks returns the fold of n ranks.
func foldRanks(n int) fold {
	log := bits.Len(uint(n)) - 1
	return fold{1 << log, log, n - 1<<log}
}

// seat returns the seat of a rank: its own, or that of its pair.
func (f fold) seat(rank int) int {
	if rank < 2*f.extra {
		return rank / 2
	}
	return rank - f.extra
}

// start returns the first rank of a seat; start(p) is the number of ranks. So seats [a, b) stand
// for ranks [start(a), start(b)).
func (f fold) start(seat int) int { return seat + min(seat, f.extra) }

// paired reports whether a seat stands for two ranks.
func (f fold) paired(seat int) bool { return seat < f.extra }

// ranks returns the ranks that seats [a, b) stand for.
func (f fold) ranks(a, b int) piece { return piece{f.start(a), f.start(b) - f.start(a)} }

// odd returns the active rank of a seat, if the second rank of each pair is active.
func (f fold) odd(seat int) int { return f.start(seat+1) - 1 }
