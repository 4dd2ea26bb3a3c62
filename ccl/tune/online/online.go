package online

import (
	"math"
	"math/bits"

	"github.com/goccl/goccl/ccl/dtype"
)

// Limits of trials. A candidate costs what it is slower: in one round if it is farther off than
// lenient, in both otherwise.
const (
	rounds      = 2
	lenient     = 1.5
	Margin      = 1.1 // how many times faster than the current choice a winner must be
	MostClasses = 32  // of a group, in which something is tried
)

// A trial is turns calls with one algorithm, of which those after the first ones are timed. The
// first ones make connections, which are slow at first, and have what the algorithm before them has
// left in caches and queues, or of the burst of a port.
//
// Before and behind the timed calls the ranks exchange times, for which all of them must have come:
// a rank that only sends is far ahead of the others otherwise, and its calls, and then those of a
// rank that receives what has long been sent, would seem short.
const (
	turns = 4
	warm  = 2
	timed = turns - warm
	after = 2 * turns // the place in a round of the call behind both trials
)

// Lost returns how many calls' time the trials of a candidate cost that takes so many times as long
// as the current choice.
func Lost(times float64) float64 {
	if times <= lenient {
		return rounds * turns * max(0, times-1)
	}
	return turns * (times - 1)
}

// Never is the number of no call, and the time of what was not measured.
const Never = math.MaxUint64

// Turn says how a call runs.
type Turn struct {
	Algorithm int
	Agree     bool   // not before the ranks have exchanged Times; then Turn is asked again
	Trial     bool   // it is part of a trial: Took is to be called when it has ended
	Until     uint64 // calls of this class before the one with this number run alike
}

// Candidate is an algorithm to be tried.
type Candidate struct {
	Algorithm int
	After     uint64 // how many calls of the group there are at least after the first of the class
}

// Offer returns the candidates for calls of a class besides the usual choice, in the order of
// After. All ranks must offer the same.
type Offer func(coll dtype.Collective, bytes int64, usual int) []Candidate

// Result is what the trials of a candidate have come to.
type Result struct {
	Coll      dtype.Collective
	Low, High int64     // bytes of the class
	Current   int       // what ran before
	Candidate int       // what was tried in its place
	Times     [2]uint64 // of a call in the best trial of both, in nanoseconds, on the rank where it took longest
	Rounds    int
	Won       bool
}

// Tuner tries the algorithms of one group. It must not be used concurrently.
type Tuner struct {
	offer Offer
	ended func(*Result)
	each  map[key]*class
	tried int    // classes that have candidates
	last  *class // of the last Turn
}

type key struct {
	coll  dtype.Collective
	class int
	usual int
}

// class is the trials of a class: one candidate after the other takes turns with what has won so
// far. In each round both have a trial, in the first round the candidate comes last, in the second
// first, and so on: what changes while the trials go on favours none.
type class struct {
	key
	current    int
	candidates []Candidate // that are left; the first is being tried, or comes next
	first      uint64      // number of the first call
	round      int         // of the first candidate
	calls      int         // of this round
	met        bool        // the ranks have exchanged times before the next call
	sum        uint64      // of this trial: the summed calls that are timed
	summed     int
	best       [2]uint64 // of the trials of current and candidate, on this rank
}

// New returns the Tuner of a group. It tells ended what the trials of each candidate have come to.
func New(offer Offer, ended func(*Result)) *Tuner {
	return &Tuner{offer: offer, ended: ended, each: map[key]*class{}}
}

func keyOf(coll dtype.Collective, bytes int64, usual int) key {
	return key{coll, bits.Len64(uint64(max(bytes, 1) - 1)), usual}
}

// Choice returns what runs for calls that are no trials: the usual choice, or a winner.
func (t *Tuner) Choice(coll dtype.Collective, bytes int64, usual int) int {
	if c := t.each[keyOf(coll, bytes, usual)]; c != nil {
		return c.current
	}
	return usual
}

// Turn says how the call with a number runs. Every rank must ask for the same calls, but for those
// before Turn.Until.
func (t *Tuner) Turn(coll dtype.Collective, bytes int64, usual int, number uint64) Turn {
	k := keyOf(coll, bytes, usual)
	c := t.each[k]
	if c == nil {
		c = t.begin(k, bytes, number)
		t.each[k] = c
	}
	t.last = c
	if len(c.candidates) == 0 {
		return Turn{Algorithm: c.current, Until: Never}
	}
	if from := c.first + c.candidates[0].After; number < from {
		return Turn{Algorithm: c.current, Until: from}
	}
	if !c.met && (c.calls > 0 && c.calls%turns == 0 || c.calls%turns == warm || c.calls > after) {
		return Turn{Algorithm: c.current, Agree: true}
	}
	c.met = false
	if c.calls%turns == 0 {
		c.sum, c.summed = 0, 0
	}
	c.calls++
	if c.calls > after {
		return Turn{Algorithm: c.current, Until: number + 1}
	}
	return Turn{Algorithm: [2]int{c.current, c.candidates[0].Algorithm}[c.tries(c.calls-1)], Trial: true}
}

func (t *Tuner) begin(k key, bytes int64, number uint64) *class {
	c := &class{key: k, current: k.usual, first: number, best: [2]uint64{Never, Never}}
	if t.tried < MostClasses {
		c.candidates = t.offer(k.coll, bytes, k.usual)
	}
	if len(c.candidates) > 0 {
		t.tried++
	}
	return c
}

// tries returns what a call of the round is a trial of: 0 the current choice, 1 the candidate.
func (c *class) tries(call int) int { return (call/turns + c.round) % 2 }

// Took says how long the call took that the last Turn was about, a part of a trial.
func (t *Tuner) Took(nanoseconds uint64) {
	if c := t.last; (c.calls-1)%turns >= warm {
		c.sum, c.summed = c.sum+nanoseconds, c.summed+1
	}
}

// Drop gives a candidate up that no rank can run: that of the last Turn. It reports false for the
// current choice, which stays.
func (t *Tuner) Drop() bool {
	c := t.last
	if c.tries(c.calls-1) == 0 {
		return false
	}
	c.end(false)
	return true
}

// end ends the trials of a candidate.
func (c *class) end(won bool) {
	if won {
		c.current = c.candidates[0].Algorithm
	}
	c.candidates = c.candidates[1:]
	c.round, c.calls, c.met, c.best = 0, 0, false, [2]uint64{Never, Never}
}

// Times returns what this rank tells the others before a call for which Turn.Agree was set: the
// best times of both algorithms.
func (t *Tuner) Times() []uint64 { return t.last.best[:] }

// Agree takes the longest of these times of all ranks, and how long this rank has waited for them.
// At the end of a round another one follows, or the candidate has won or lost.
func (t *Tuner) Agree(longest []uint64, waited uint64) {
	c := t.last
	if c.calls <= after {
		if c.calls%turns == 0 && c.summed == timed { // it has not ended before the last rank has
			best := &c.best[c.tries(c.calls-1)]
			*best = min(*best, (c.sum+waited)/timed)
		}
		c.met = true
		return
	}
	r := &Result{Coll: c.coll, High: 1 << c.class, Current: c.current, Candidate: c.candidates[0].Algorithm,
		Times: [2]uint64(longest), Rounds: c.round + 1}
	if c.class > 0 {
		r.Low = r.High/2 + 1
	}
	current, candidate := float64(r.Times[0]), float64(r.Times[1])
	c.round, c.calls, c.met = c.round+1, 0, false
	if candidate <= lenient*current && c.round < rounds {
		return
	}
	r.Won = c.round == rounds && candidate*Margin < current
	c.end(r.Won)
	t.ended(r)
}
