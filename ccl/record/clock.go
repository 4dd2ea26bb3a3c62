package record

import "time"

// clock turns ticks into times: the time at two moments tells the rate, and everything that is
// remembered lies between them. So ticks need no known frequency, only a steady one.
type clock struct {
	ticks uint64
	time  time.Time
}

func newClock() clock { return clock{ticks(), time.Now()} }

// reading is a clock with its second moment.
type reading struct {
	clock
	rate float64 // nanoseconds a tick
}

func (c clock) now() reading {
	later := newClock()
	r := reading{clock: later}
	if d := later.ticks - c.ticks; d > 0 {
		r.rate = float64(later.time.Sub(c.time)) / float64(d)
	}
	return r
}

// at is the time of a tick before the reading.
func (r reading) at(tick uint64) time.Time {
	return r.time.Add(-time.Duration(float64(int64(r.ticks-tick)) * r.rate))
}
