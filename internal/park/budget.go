package park

import (
	"sync/atomic"
	"time"
)

// MaxSpin is the longest time that a wait may be set to stay awake.
const MaxSpin = 100 * time.Millisecond

// spinFor is the value given to SetSpin; negative is adaptive.
var spinFor atomic.Int64

func init() { spinFor.Store(-1) }

// SetSpin sets how long every wait of this process stays awake (spinning, then yielding) before it
// sleeps. With 0 waits never stay awake; a negative value, the default, lets waits learn the time.
// Values above MaxSpin are reduced to MaxSpin.
func SetSpin(d time.Duration) { spinFor.Store(int64(min(max(d, -1), MaxSpin))) }

// A learner chooses how long a wait that outlasted blind spinning stays awake. After each wait it
// knows how long the wait took, and hence what every choice would have cost. It keeps a moving
// average of these costs for a few choices and takes the cheapest. A choice costs the time awake,
// at the rate below, and, where it was too short, a sleep and a wake.
//
// In the foreground the longest choice costs one wakeCost, so no wait costs more than about twice
// what it would have cost had its length been known beforehand. Learning only improves on that.
type learner struct {
	costs  [len(choices)]atomic.Int64
	chosen atomic.Int32 // index into choices, from the end
}

// choices are in quarters of a wakeCost. The longest is thus 16 to 200 µs.
var choices = [...]int64{0, 1, 4, 16}

const weight = 8 // a new sample counts 1/weight in the moving average

// crowdSpan is how long to yield on a core that peers need and use: yielding is cheap there, and
// being woken is expensive. Measured with the executor, 8 ranks on 2 cores: reducing 8 bytes took
// 22 µs, and 38 µs with sleep after the first vain yield.
const crowdSpan = int64(500 * time.Microsecond)

// foreground learns from threads whose caller waits for the result, background from threads for
// which no caller waits.
var foreground, background learner

// rate returns the cost of a nanosecond awake, in quarters; a nanosecond of delay costs four.
func (l *learner) rate() int64 {
	if l == &background {
		return 4
	}
	return 1
}

// budget returns how long to stay awake.
func (l *learner) budget() int64 {
	return choices[len(choices)-1-int(l.chosen.Load())] * wakeCost() / 4
}

// observe records a wait that took d in all.
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
		// Sixteenths, for the rounding. If another thread stores at the same time, one sample is
		// lost.
		c = old + (c*16-old)/weight
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

// budget returns how long s may yield.
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
		d = max(s.limit-s.since, d-wakeCost()) // awake, it would have ended that much earlier
	}
	s.learner().observe(d)
}
