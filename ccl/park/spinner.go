package park

import (
	"sync/atomic"
	"time"
)

// Budgets of a wait before it sleeps in the kernel. Spinning is for a peer that runs on another core right now; yielding
// lets a peer that shares this core go on. Nobody knows which of the two it is, so blind spinning is kept short: measured on two
// cores, a hop costs 0.2 µs while both spin, 1.7 µs by yielding when both sit on one core, and as much as the whole
// blind spin if they sit there and do not yield.
const (
	spinTurns  = 12 // of pausesTurn, 1 to 2 µs
	pausesTurn = 4
	yieldSpan  = 150 * time.Microsecond
	crowdSpan  = 500 * time.Microsecond // where ranks share cores, sleeping is dearer than yielding
)

// threads is how many threads of this host may wait at the same time, as far as this process knows.
var threads atomic.Int32

// SetLocalRanks tells how many ranks of the job share this host. It decides whether waiting may spin at all.
func SetLocalRanks(n int) {
	for {
		old := threads.Load()
		if int32(n) <= old || threads.CompareAndSwap(old, int32(n)) {
			return
		}
	}
}

func crowded() bool { return int(threads.Load()) > Cores() }

// Spinner paces one wait. The zero value is ready.
type Spinner struct {
	turns int
	since time.Time
}

// Reset starts a new wait, after progress.
func (s *Spinner) Reset() { s.turns = 0; s.since = time.Time{} }

// Turn is called after a look that found nothing. It pauses, or yields the core, and reports false once the
// budget is spent and the caller should sleep.
func (s *Spinner) Turn() bool {
	s.turns++
	crowd := crowded()
	if !crowd && s.turns <= spinTurns {
		Pause(pausesTurn)
		return true
	}
	span := yieldSpan
	if crowd {
		span = crowdSpan
	}
	if s.since.IsZero() {
		s.since = time.Now()
	} else if time.Since(s.since) > span {
		return false
	}
	yield()
	return true
}

// Spinning reports whether the wait is still young; callers skip dear checks (deadlines, sockets) then.
func (s *Spinner) Spinning() bool { return s.since.IsZero() }
