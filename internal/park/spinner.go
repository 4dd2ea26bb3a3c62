package park

import "time"

// A wait has three parts. Spinning serves a peer that runs on another core right now: it sees the
// event first, but hinders threads that need this core. Yielding lets a peer that shares this core
// continue. Sleeping uses no processor time, but being woken is expensive. Yields show which of the
// first two helps (sharing.go); how long to stay awake is learned from how long waits take
// (budget.go).
const (
	tightTurns = 16 // with one pause each; later turns have turnPauses
	turnPauses = 4
	clockTurns = 8 // blind turns between two readings of the clock

	// Longer than the usual skew of peers on other cores in an operation that fits the caches. In
	// measurements a shorter span fed on itself where ranks were disturbed now and then: a rank
	// that yields makes the others late, and these yield then. Where ranks share a core, none spins
	// blindly.
	blindSpan = int64(20 * time.Microsecond)
)

var epoch = time.Now()

// now returns monotonic nanoseconds.
func now() int64 { return int64(time.Since(epoch)) }

// Spinner paces one wait. The zero value is ready.
type Spinner struct {
	// Background is set by a thread that no caller waits for: it leaves the processor to threads
	// that compute.
	Background bool

	phase phase
	turns int32
	slow  int32 // the first turn that has more to do than to pause
	since int64 // when timing of blind spinning began, then when yielding began
	limit int64 // when yielding ends
}

type phase uint8

const (
	blind    phase = iota
	yielding       // since is the time when yielding began
	spent          // Turn has returned false
)

// Reset ends a wait, after progress or a sleep, and starts a new one. The waits that it ends are
// those from which durations are learned.
func (s *Spinner) Reset() {
	if s.phase != blind {
		s.learn()
	}
	s.phase, s.turns, s.slow, s.since = blind, 0, 0, 0
}

// Spinning reports whether the wait is still young. Callers then skip expensive checks (deadlines,
// sockets).
func (s *Spinner) Spinning() bool { return s.phase == blind }

// Turn is called after a check that found nothing. It pauses or yields the core. It returns false
// once the budget is spent and the caller should sleep.
func (s *Spinner) Turn() bool {
	s.turns++
	if s.turns < s.slow {
		if s.turns < tightTurns {
			Pause(1)
		} else {
			Pause(turnPauses)
		}
		return true
	}
	return s.turn()
}

// turn is the rest of Turn: it is called once in a while in the blind part, and always after it.
func (s *Spinner) turn() bool {
	if s.phase == blind && s.pause() {
		return true
	}
	t := now()
	if s.phase == blind {
		s.since, s.limit = t, t+s.budget()
		if spinFor.Load() == 0 || t < share.sleepUntil.Load() {
			s.limit = t
			return s.sleep(t)
		}
		// At least one yield: that alone is often enough, and much cheaper than being woken.
		s.phase = yielding
	} else if t >= s.limit {
		return s.sleep(t)
	}
	yield()
	share.yielded(t, now())
	return true
}

func (s *Spinner) sleep(t int64) bool {
	s.phase = spent
	reread(t)
	return false
}

// Spin is Turn for a caller that knows that no other thread needs this core. It pauses, whatever
// yields have shown, and returns false when that has taken as long as it may. The caller then
// continues with Turn.
func (s *Spinner) Spin() bool {
	if s.phase != blind || s.slow == 0 && (s.Background || spinFor.Load() == 0) {
		return false
	}
	if s.slow == 0 {
		s.slow = tightTurns
	}
	if s.turns++; s.turns < s.slow {
		Pause(1)
		return true
	}
	return s.pause()
}

// pause continues the blind part, or reports false when it is over.
func (s *Spinner) pause() bool {
	switch {
	case s.slow == 0:
		if s.Background || !share.blindly() || spinFor.Load() == 0 {
			return false
		}
		s.slow = tightTurns
	case s.since == 0:
		s.since = now()
		s.slow += clockTurns
	default:
		if now()-s.since >= blindSpan {
			return false
		}
		s.slow += clockTurns
	}
	Pause(1)
	return true
}

// Relax is Turn for a lock that is held for a few instructions. It never asks the caller to sleep,
// and it yields repeatedly to a holder that has lost its core.
func (s *Spinner) Relax() {
	if s.turns++; s.turns%tightTurns != 0 {
		Pause(turnPauses)
		return
	}
	yield()
}
