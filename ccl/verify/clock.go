package verify

// clock is a vector clock: for each lane of each rank how far it is known to have come, as 2k+1 when its step k has
// started and 2k+2 when it has ended. The last element counts messages: the longest chain that leads here.
type clock []int32

func started(step int) int32 { return int32(2*step + 1) }
func ended(step int) int32   { return int32(2*step + 2) }

// join makes c know what d knows.
func (c clock) join(d clock) {
	d = d[:len(c)]
	for i := range c {
		c[i] = max(c[i], d[i])
	}
}

// rounds is the counter of messages.
func (c clock) rounds() *int32 { return &c[len(c)-1] }

// clocks lends clocks, which live as long as somebody has yet to join them.
type clocks struct {
	size int
	free []clock
}

func (s *clocks) copyOf(c clock) clock {
	if n := len(s.free); n > 0 {
		d := s.free[n-1]
		s.free = s.free[:n-1]
		copy(d, c)
		return d
	}
	return append(make(clock, 0, s.size), c...)
}

func (s *clocks) giveBack(c clock) { s.free = append(s.free, c) }
