package predicted

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
)

// Limits of a choice: what it may cost to simulate.
const (
	mostRanks = 8
	mostBytes = 1 << 20 // longer calls are chosen as this one
)

// How many times shorter a prediction must be to win: over the rules, for which some of what is not
// simulated speaks, and over an algorithm that comes before in the catalogue.
const (
	better  = 1.1
	shorter = 1.02
)

// Chooser chooses algorithms between ranks that are hosts of their own, by what is predicted for
// them. Any goroutine may use it.
type Chooser struct {
	costs    cost.Table
	channels int  // that links have for the messages of plans
	wrong    bool // no network costs that

	mu    sync.Mutex
	among map[int]*Predictor // by ranks; nil where it cannot predict
	known map[question]answer
}

type question struct {
	coll  dtype.Collective
	ranks int
	class int // the logarithm of the bytes
	usual string
}

type answer struct {
	name string
	all  []Prediction
}

// NewChooser returns a Chooser for a network. All ranks that give the same network choose alike.
// Another rank may have said what it costs: where that cannot be, the Chooser predicts nothing, and
// it cuts messages as this library does.
func NewChooser(network *cost.Path, channels int) *Chooser {
	c := &Chooser{costs: *cost.Usual(), channels: channels, among: map[int]*Predictor{}, known: map[question]answer{}}
	c.costs.Network = *network
	c.costs.Network.TCP()
	c.wrong = c.costs.Validate() != nil
	return c
}

// Choose is tune.Wishes.Among. The first choice for a size, of those that are rounded to the same
// power of two, takes some milliseconds, later ones a look-up.
func (c *Chooser) Choose(call tune.Call, ranks int, usual string) string {
	if !c.predicts(call, ranks) {
		return usual
	}
	return c.answer(call, ranks, usual).name
}

// Prediction is what an algorithm takes.
type Prediction struct {
	Name    string
	Seconds float64
}

// Predictions returns what all algorithms are predicted to take, the fastest first: in the mean of
// a call alone and one among others. The arguments are those of Choose, and nil is returned where
// Choose predicts nothing.
func (c *Chooser) Predictions(call tune.Call, ranks int, usual string) []Prediction {
	if !c.predicts(call, ranks) {
		return nil
	}
	return c.answer(call, ranks, usual).all
}

func (c *Chooser) predicts(call tune.Call, ranks int) bool {
	switch call.Coll {
	case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter, dtype.Broadcast, dtype.Reduce:
		return ranks >= 2 && ranks <= mostRanks && call.Bytes > 0 && !c.wrong
	}
	return false // a rank does not know the size, or there is none
}

func (c *Chooser) answer(call tune.Call, ranks int, usual string) answer {
	class := int(math.Round(math.Log2(float64(min(call.Bytes, mostBytes)))))
	key := question{call.Coll, ranks, class, usual}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.known[key]
	if !ok {
		a = c.choose(call.Coll, ranks, max(1<<class, int64(elementBytes*ranks)), usual)
		c.known[key] = a
	}
	return a
}

// elementBytes is the size of the elements of predicted calls.
const elementBytes = 4

// choose finds the algorithm that is predicted to be fastest.
func (c *Chooser) choose(coll dtype.Collective, ranks int, bytes int64, usual string) (a answer) {
	a.name = usual
	on := topo.Spread(ranks, ranks)
	p, ok := c.among[ranks]
	if !ok {
		p, _ = New(on, &c.costs) // costs that were validated make a network that is valid
		c.among[ranks] = p
	}
	if p == nil {
		return a
	}
	best := math.Inf(1)
	if seconds, ok := p.score(coll, usual, bytes); ok {
		best = seconds / better
		a.all = append(a.all, Prediction{usual, seconds})
	}
	for _, other := range algo.For(coll) { // those that send messages can also be a level between hosts
		made, err := other.OnHosts(plan.Spec{Coll: coll, Ranks: ranks}, on)
		if other.Name == usual || other.Name == "hierarchical" || err != nil || made.Chans > c.channels ||
			made.Needs&(plan.Gets|plan.Puts) != 0 {
			continue
		}
		seconds, ok := p.score(coll, other.Name, bytes)
		if !ok {
			continue
		}
		a.all = append(a.all, Prediction{other.Name, seconds})
		if seconds*shorter < best {
			best, a.name = seconds, other.Name
		}
	}
	slices.SortStableFunc(a.all, func(x, y Prediction) int { return cmp.Compare(x.Seconds, y.Seconds) })
	return a
}

// score returns the mean of the time of a call alone, and of one among others: where a network lets
// bursts through, calls that follow one another take what their bytes take, whatever the order of
// the messages, and yet the fewer steps are better.
func (p *Predictor) score(coll dtype.Collective, algorithm string, bytes int64) (seconds float64, ok bool) {
	alone, err := p.Alone(coll, algorithm, bytes, elementBytes)
	if err != nil {
		return 0, false
	}
	first, err := p.Call(coll, algorithm, bytes, elementBytes, 1)
	if err != nil {
		return 0, false
	}
	few, err := p.Call(coll, algorithm, bytes, elementBytes, scoredCalls)
	among := (few*scoredCalls - first) / (scoredCalls - 1)
	return (alone + max(among, p.busiest)) / 2, err == nil
}

// scoredCalls is how many calls follow one another in a score.
const scoredCalls = 3
