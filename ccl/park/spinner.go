package park

import "time"

// A wait has three parts. Spinning is for a peer that runs on another core right now: it sees the
// event first, and hinders whoever needs this core. Yielding lets a peer that shares this core go
// on. Sleeping uses no processor, and being woken is dear. Which of the first two helps is seen by
// what yields do (sharing.go); how long to stay awake is learned from how long waits take
// (budget.go).
const (
	tightTurns = 16 // with one pause each; later turns have several
	turnPauses = 4
	clockTurns = 8 // blind turns between two looks at the clock

	// Longer than peers on other cores are usually apart in an operation that fits the caches. Less
	// was measured to feed on itself where somebody disturbs the ranks now and then: who yields
	// makes the others late, which yield then. Where ranks share a core nobody spins blindly.
	blindSpan = int64(20 * time.Microsecond)
)

var epoch = time.Now()

// now is monotonic nanoseconds.
func now() int64 { return int64(time.Since(epoch)) }

// Spinner paces one wait. The zero value is ready.
type Spinner struct {
	// Background is set by a thread that nobody waits for: it leaves the processor to those who
	// compute.
	Background bool

	phase phase
	turns int32
	slow  int32 // the turn that has more to do than to pause
	since int64 // when blind spinning began to be timed, then when yielding began
	limit int64 // when yielding ends
}

type phase uint8

const (
	blind    phase = iota
	yielding       // since says since when
	spent          // Turn has said so
)

// Reset ends a wait, after progress or a sleep, and starts a new one. How long waits take is
// learned from those that are ended by it.
func (s *Spinner) Reset() {
	if s.phase != blind {
		s.learn()
	}
	s.phase, s.turns, s.slow, s.since = blind, 0, 0, 0
}

// Spinning reports whether the wait is still young; callers skip dear checks (deadlines, sockets)
// then.
func (s *Spinner) Spinning() bool { return s.phase == blind }

// Turn is called after a look that found nothing. It pauses, or yields the core, and reports false
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

// turn is the rest of Turn: once in a while in the blind part, always after it.
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
		s.phase = yielding // once at least: that alone is often enough, and much cheaper than to be woken
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

// Spin is Turn for who knows that nobody needs this core: it pauses, whatever yields have told, and
// reports false when that has taken as long as it may. Then Turn goes on.
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

// pause goes on with the blind part, or says that it is over.
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

// Relax is Turn for a lock that is held for some instructions: it never says that the caller should
// sleep, and yields again and again to a holder that lost its core.
func (s *Spinner) Relax() {
	if s.turns++; s.turns%tightTurns != 0 {
		Pause(turnPauses)
		return
	}
	yield()
}
