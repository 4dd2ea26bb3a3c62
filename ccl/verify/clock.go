package verify

// clock is a vector clock: it records for each lane how far the lane is known to have come, as 2k+1
// when its step k has started and 2k+2 when it has ended. It covers the lanes of all ranks, or only
// those of the rank: then messages order nothing, and the clock underestimates what is ordered.
// The last element counts messages: the length of the longest chain that leads here.
type clock []int32

func started(step int) int32 { return int32(2*step + 1) }
func ended(step int) int32   { return int32(2*step + 2) }

// stepOf returns the step of a moment that started or ended returned.
func stepOf(moment int32) int { return int(moment-1) / 2 }

// join adds to c everything that d knows.
func (c clock) join(d clock) {
	d = d[:len(c)]
	for i, known := range d {
		if known > c[i] {
			c[i] = known
		}
	}
}

// rounds returns the counter of messages.
func (c clock) rounds() *int32 { return &c[len(c)-1] }

// clocks allocates clocks by number. A clock lives until every lane that has to join it has done
// so. Number 0 is no clock.
type clocks struct {
	size  int
	pages [][]int32
	next  int32
	free  []int32
}

const clockPage = 256 // clocks

func (s *clocks) at(id int32) clock {
	lo := int(id%clockPage) * s.size
	return clock(s.pages[id/clockPage][lo : lo+s.size])
}

func (s *clocks) copyOf(c clock) int32 {
	var id int32
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		s.next++
		id = s.next
		if int(id/clockPage) >= len(s.pages) {
			s.pages = append(s.pages, make([]int32, clockPage*s.size))
		}
	}
	copy(s.at(id), c)
	return id
}

func (s *clocks) release(id int32) { s.free = append(s.free, id) }
