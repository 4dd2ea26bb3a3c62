package park

import "time"

// Seats spreads the ranks of a group evenly over the cores of this host where they outnumber the
// cores. A scheduler does that too, but slowly: threads that yield to each other are never cold,
// and load balancing passes over warm threads. Measured on Linux 6.18, 4 ranks on 2 cores, after an
// event that made them sleep: three or all of them stayed on one core for 30 ms and more, and
// reduced 8 bytes in 24 to 40 µs instead of 15.
//
// Ranks tell each other which core they are on, and each rank determines by itself which rank has
// to move. A rank that may not run on all cores of the host stays where it is.
type Seats struct {
	cores  []int // of the host
	taken  []int // by index into cores: how many ranks are there
	places []int // by rank: index into cores, or -1
	next   int64 // the earliest time of the next move
	gap    int64
}

// A move takes some ten microseconds. If the ranks are together again at once, the move was in
// vain, and the gap to the next one doubles.
const (
	leastGap = int64(500 * time.Microsecond)
	mostGap  = int64(32 * time.Millisecond)
)

// NewSeats returns seats for a group of the given number of ranks, all on this host. It returns nil
// if there is a core for each rank, or if threads cannot be moved.
func NewSeats(ranks int) *Seats {
	cores := online()
	if len(cores) < 2 || ranks <= len(cores) {
		return nil
	}
	return &Seats{cores: cores, taken: make([]int, len(cores)), places: make([]int, ranks), gap: leastGap}
}

// Here returns the core that the calling thread runs on, or -1 if that is not known.
func (s *Seats) Here() int { return here() }

// Put records the core that a rank is on.
func (s *Seats) Put(rank, core int) {
	s.places[rank] = -1
	for i, each := range s.cores {
		if each == core {
			s.places[rank] = i
		}
	}
}

// Settle moves the calling thread, which is rank own, to another core if this rank has to move. Its
// affinity is afterwards as before. Settle reports whether the ranks are known to be spread evenly
// now.
func (s *Seats) Settle(own int) bool {
	from := s.places[own]
	if !s.spread() {
		return false
	}
	to := s.places[own]
	if to == from {
		return true
	}
	t := now()
	if t < s.next {
		return false
	}
	if t-s.next > mostGap {
		s.gap = leastGap // no move was needed for a while
	} else {
		s.gap = min(2*s.gap, mostGap)
	}
	s.next = t + s.gap
	return move(s.cores[to])
}

// spread changes places to what they should be, or reports false if some are not known. All ranks
// with the same knowledge get the same result: the last rank of the fullest core goes to the
// emptiest one, until cores differ by at most one rank.
func (s *Seats) spread() bool {
	clear(s.taken)
	for _, place := range s.places {
		if place < 0 {
			return false
		}
		s.taken[place]++
	}
	for {
		full, empty := 0, 0
		for i, n := range s.taken {
			if n > s.taken[full] {
				full = i
			}
			if n < s.taken[empty] {
				empty = i
			}
		}
		if s.taken[full]-s.taken[empty] < 2 {
			return true
		}
		last := len(s.places) - 1
		for s.places[last] != full {
			last--
		}
		s.places[last] = empty
		s.taken[full]--
		s.taken[empty]++
	}
}

// Mates appends to list the other ranks on the core of rank own, as placed after Settle.
func (s *Seats) Mates(own int, list []int) []int {
	for r, place := range s.places {
		if r != own && place == s.places[own] {
			list = append(list, r)
		}
	}
	return list
}
