package park

import (
	"sync/atomic"
	"time"
)

// MaxSpin is the longest that a wait may be told to stay awake.
const MaxSpin = 100 * time.Millisecond

// spinFor is what SetSpin has set; negative is adaptive.
var spinFor atomic.Int64

func init() { spinFor.Store(-1) }

// SetSpin says how long every wait of this process stays awake (spinning, then yielding) before it
// sleeps: 0 never does, and a negative value lets waits learn it, which is the default. More than
// MaxSpin is MaxSpin.
func SetSpin(d time.Duration) { spinFor.Store(int64(min(max(d, -1), MaxSpin))) }

// A learner chooses how long a wait that outlasted blind spinning stays awake. It knows afterwards
// how long each wait took, hence what every choice would have cost, keeps a moving average for a
// few choices, and takes the cheapest. A choice costs the time awake, at the rate below, and where
// it was too short a sleep and a wake.
//
// In the foreground the longest choice costs one wakeCost, so that no wait costs more than about
// twice what it would have cost had its length been known beforehand. What is learned only makes it
// better.
type learner struct {
	costs  [len(choices)]atomic.Int64
	chosen atomic.Int32 // index into choices, from the end
}

// choices are in quarters of a wakeCost, which makes the longest 16 to 200 µs.
var choices = [...]int64{0, 1, 4, 16}

const weight = 8 // of the past in the moving average

// crowdSpan is how long to yield on a core that peers need, and use: that is cheap, and to be woken
// there is dear. Measured with the executor, 8 ranks on 2 cores: 8 bytes were reduced in 22 µs,
// with sleep after the first vain yield in 38 µs.
const crowdSpan = int64(500 * time.Microsecond)

// foreground is of threads whose caller waits for the result; background is of threads that nobody
// waits for.
var foreground, background learner

// rate is what a nanosecond awake costs, in quarters, where one of delay costs four.
func (l *learner) rate() int64 {
	if l == &background {
		return 4
	}
	return 1
}

// budget is how long to stay awake.
func (l *learner) budget() int64 {
	return choices[len(choices)-1-int(l.chosen.Load())] * wakeCost() / 4
}

// observe takes a wait that took d in all.
func (l *learner) observe(d int64) {
	cost, rate := wakeCost(), l.rate()
	best, least := 0, int64(-1)
	for i := range choices { // from the longest, which wins a tie
		budget := choices[len(choices)-1-i] * cost / 4
		c := min(d, budget) * rate / 4
		if d > budget {
			c += cost
		}
		old := l.costs[i].Load()
		c = old + (c*16-old)/weight // sixteenths, for the rounding. A store that another thread's overtakes loses one sample
		l.costs[i].Store(c)
		if least < 0 || c < least {
			best, least = i, c
		}
	}
	l.chosen.Store(int32(best))
}

func (s *Spinner) learner() *learner {
	if s.Background {
		return &background
	}
	return &foreground
}

// budget is how long s may yield.
func (s *Spinner) budget() int64 {
	switch d := spinFor.Load(); {
	case d >= 0:
		return d
	case !s.Background && share.core.Load() >= shared:
		return crowdSpan
	}
	return s.learner().budget()
}

// learn is called when a wait that outlasted blind spinning ends.
func (s *Spinner) learn() {
	if spinFor.Load() >= 0 {
		return
	}
	d := now() - s.since
	if s.phase == spent {
		d = max(s.limit-s.since, d-wakeCost()) // it would have ended that much earlier, awake
	}
	s.learner().observe(d)
}
