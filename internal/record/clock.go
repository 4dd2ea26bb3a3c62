package record

import "time"

// clock converts ticks to times. Its rate follows from ticks and time at two moments, and all
// recorded ticks lie between these. So the frequency of the ticks need not be known, but it must be
// constant.
type clock struct {
	ticks uint64
	time  time.Time
}

func newClock() clock { return clock{ticks(), time.Now()} }

// reading is a clock at its second moment, and the rate since the first.
type reading struct {
	clock
	rate float64 // nanoseconds per tick
}

func (c clock) now() reading {
	later := newClock()
	r := reading{clock: later}
	if d := later.ticks - c.ticks; d > 0 {
		r.rate = float64(later.time.Sub(c.time)) / float64(d)
	}
	return r
}

// at returns the time of a tick before the reading.
func (r reading) at(tick uint64) time.Time {
	return r.time.Add(-time.Duration(float64(int64(r.ticks-tick)) * r.rate))
}
