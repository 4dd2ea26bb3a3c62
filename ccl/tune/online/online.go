package online

import (
	"math"
	"math/bits"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
)

// Limits of trials. A class costs what its candidates are slower than the usual choice: at most two
// of them, once if they are farther off than lenient, twice if they are farther off than near.
const (
	rounds      = 3
	lenient     = 2.0 // after one trial, in which connections may have been made
	near        = 1.1
	Margin      = 1.1 // how many times faster than the usual choice a winner must be
	MostOthers  = 2   // candidates besides the usual choice
	MostClasses = 32  // of a group, in which something is tried
)

// Never is the number of no call, and the time of what was not measured.
const Never = math.MaxUint64

// Turn says how a call runs.
type Turn struct {
	Algorithm int
	Agree     bool   // not before the ranks have agreed on Times; then Turn is asked again
	Trial     bool   // Took is to be called when it has ended
	Until     uint64 // calls of this class before the one with this number run alike
}

// Result is what the trials of a class have come to.
type Result struct {
	Coll       dtype.Collective
	Low, High  int64    // bytes of the class
	Algorithms []int    // the usual choice first
	Times      []uint64 // of the best trial of each, in nanoseconds, on the rank where it took longest
	Trials     []int    // how many each had
	Winner     int      // an index
}

// Offer returns the candidates for calls of a class besides the usual choice, best first, and how
// many calls of the group there are at least before they are tried. All ranks must offer the same.
type Offer func(coll dtype.Collective, bytes int64, usual int) (others []int, after uint64)

// Tuner tries the algorithms of one group. It must not be used concurrently.
type Tuner struct {
	offer   Offer
	settled func(*Result)
	each    map[key]*class
	tried   int    // classes that have candidates
	last    *class // of the last Turn
}

type key struct {
	coll  dtype.Collective
	class int
	usual int
}

// class is the trials of a class.
type class struct {
	Result
	first uint64   // the number of the first call that may be a trial
	best  []uint64 // of each candidate on this rank
	order []int    // of this round
	at    int      // in order
	round int
	over  bool
}

// New returns the Tuner of a group. It tells settled when a class has a winner.
func New(offer Offer, settled func(*Result)) *Tuner {
	return &Tuner{offer: offer, settled: settled, each: map[key]*class{}}
}

func keyOf(coll dtype.Collective, bytes int64, usual int) key {
	return key{coll, bits.Len64(uint64(max(bytes, 1) - 1)), usual}
}

// Choice returns what runs for calls that are no trials: the usual choice, or the winner.
func (t *Tuner) Choice(coll dtype.Collective, bytes int64, usual int) int {
	if c := t.each[keyOf(coll, bytes, usual)]; c != nil {
		return c.Algorithms[c.Winner]
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
	switch {
	case c.over:
		return Turn{Algorithm: c.Algorithms[c.Winner], Until: Never}
	case number < c.first:
		return Turn{Algorithm: usual, Until: c.first}
	case c.at == len(c.order):
		return Turn{Algorithm: usual, Agree: true}
	}
	i := c.order[c.at]
	c.at++
	c.Trials[i]++
	return Turn{Algorithm: c.Algorithms[i], Trial: true}
}

func (t *Tuner) begin(k key, bytes int64, number uint64) *class {
	c := &class{Result: Result{Coll: k.coll, High: 1 << k.class, Algorithms: []int{k.usual}}, over: true}
	if k.class > 0 {
		c.Low = c.High/2 + 1
	}
	if t.tried == MostClasses {
		return c
	}
	others, after := t.offer(k.coll, bytes, k.usual)
	if len(others) == 0 {
		return c
	}
	t.tried++
	c.over, c.first = false, number+after
	c.Algorithms = append(c.Algorithms, others[:min(len(others), MostOthers)]...)
	c.Trials = make([]int, len(c.Algorithms))
	c.best, c.Times = unmeasured(len(c.Algorithms)), unmeasured(len(c.Algorithms))
	for i := range c.Algorithms {
		c.order = append(c.order, i)
	}
	return c
}

func unmeasured(n int) []uint64 { return slices.Repeat([]uint64{Never}, n) }

// Took says how long the trial took that the last Turn has asked for.
func (t *Tuner) Took(nanoseconds uint64) {
	c := t.last
	i := c.order[c.at-1]
	c.best[i] = min(c.best[i], nanoseconds)
}

// Drop gives a candidate up that no rank can run: that of the last Turn. It reports false for the
// usual choice, which stays.
func (t *Tuner) Drop() bool {
	c := t.last
	i := c.order[c.at-1]
	if i == 0 {
		return false
	}
	c.at--
	c.Trials[i]--
	c.order = slices.Delete(c.order, c.at, c.at+1)
	return true
}

// Times returns what this rank tells the others before a call for which Turn.Agree was set: of each
// candidate the best time.
func (t *Tuner) Times() []uint64 { return t.last.best }

// Agree takes the longest of these times of all ranks. It goes on with those candidates that may
// still win, or settles on the winner.
func (t *Tuner) Agree(longest []uint64) {
	c := t.last
	copy(c.Times, longest)
	c.round++
	fastest, limit := slices.Min(c.Times), near
	if c.round == 1 {
		limit = lenient
	}
	c.order = slices.DeleteFunc(c.order, func(i int) bool {
		return i > 0 && (c.Times[i] == Never || float64(c.Times[i]) > limit*float64(fastest))
	})
	slices.Reverse(c.order) // what changes while the trials go on, favours none
	c.at = 0
	if len(c.order) > 1 && c.round < rounds {
		return
	}
	c.over = true
	for _, i := range c.order {
		if c.Times[i] < c.Times[c.Winner] {
			c.Winner = i
		}
	}
	if float64(c.Times[c.Winner])*Margin > float64(c.Times[0]) {
		c.Winner = 0
	}
	c.order, c.best = nil, nil
	t.settled(&c.Result)
}
