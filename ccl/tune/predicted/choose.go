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
	mostRanks = 32
	mostBytes = 1 << 20 // longer calls are chosen as this one
	mostFar   = 4 << 20 // likewise, between sites: a long path holds some megabytes

	// mostEvents is how much may happen in a simulation: all that any algorithm needs on 8 hosts.
	// On many more, algorithms are left out in which all send to all: they are not the best there.
	mostEvents = 30_000
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
	on       *topo.Group
	costs    cost.Table
	channels int // that links have for the messages of plans

	mu    sync.Mutex
	among *Predictor // of the hosts; nil if it predicts nothing
	known map[question]answer
}

type question struct {
	coll  dtype.Collective
	class int // the logarithm of the bytes
	usual string
}

type answer struct {
	name string
	all  []Prediction
}

// OfGroup returns the Chooser of a group, nil where its ranks have not said what their network
// costs.
func OfGroup(group *topo.Group, channels int) *Chooser {
	if group.Network() == nil {
		return nil
	}
	return NewChooser(group, group.Network(), group.Far(), channels)
}

// NewChooser returns a Chooser for the hosts of a group, whose messages cost what network says, and
// those between sites what far says. It predicts nothing for too many hosts, for several sites
// where far is nil, and for a network that cannot be: another rank may have said what it costs.
// Messages are cut as this library cuts them. All ranks that give the same choose alike.
func NewChooser(group *topo.Group, network, far *cost.Path, channels int) *Chooser {
	c := &Chooser{costs: *cost.Usual(), channels: channels, known: map[question]answer{}}
	c.costs.Network = *network
	if far != nil {
		c.costs.Far = *far
	}
	c.costs.Network.TCP()
	c.costs.Far.TCP()
	hosts := len(group.Hosts())
	if hosts < 2 || hosts > mostRanks || len(group.Sites()) > 1 && far == nil || c.costs.Validate() != nil {
		return c
	}
	c.on = group.AmongHosts()
	if p, err := New(c.on, &c.costs); err == nil {
		p.most = mostEvents
		c.among = p
	}
	return c
}

// Choose is tune.Wishes.Among. The first choice for a size, of those that are rounded to the same
// power of two, takes some milliseconds, later ones a look-up.
func (c *Chooser) Choose(call tune.Call, usual string) string {
	if !c.predicts(call) {
		return usual
	}
	return c.answer(call, usual).name
}

// Prediction is what an algorithm takes.
type Prediction struct {
	Name    string
	Seconds float64
}

// Predictions returns what all algorithms are predicted to take, the fastest first: in the mean of
// a call alone and one among others. The arguments are those of Choose, and nil is returned where
// Choose predicts nothing.
func (c *Chooser) Predictions(call tune.Call, usual string) []Prediction {
	if !c.predicts(call) {
		return nil
	}
	return c.answer(call, usual).all
}

func (c *Chooser) predicts(call tune.Call) bool {
	switch call.Coll {
	case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter, dtype.Broadcast, dtype.Reduce:
		return call.Bytes > 0 && c.among != nil
	}
	return false // a rank does not know the size, or there is none
}

func (c *Chooser) answer(call tune.Call, usual string) answer {
	most := int64(mostBytes)
	if len(c.on.Sites()) > 1 {
		most = mostFar
	}
	class := int(math.Round(math.Log2(float64(min(call.Bytes, most)))))
	key := question{call.Coll, class, usual}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.known[key]
	if !ok {
		a = c.choose(call.Coll, max(1<<class, int64(elementBytes*c.on.Size())), usual)
		c.known[key] = a
	}
	return a
}

// elementBytes is the size of the elements of predicted calls.
const elementBytes = 4

// choose finds the algorithm that is predicted to be fastest.
func (c *Chooser) choose(coll dtype.Collective, bytes int64, usual string) (a answer) {
	a.name = usual
	p := c.among
	best, ok := p.score(coll, usual, bytes)
	if !ok {
		return a
	}
	a.all = append(a.all, Prediction{usual, best})
	best /= better
	for _, other := range c.candidates(coll) { // those that send messages can also be a level between hosts
		made, err := other.OnHosts(plan.Spec{Coll: coll, Ranks: c.on.Size()}, c.on)
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

// candidates returns the algorithms of a collective, and where there are sites of several hosts a
// few of those of which sites are a level.
func (c *Chooser) candidates(coll dtype.Collective) []algo.Algorithm {
	all := slices.Clone(algo.For(coll))
	if sites := len(c.on.Sites()); sites == 1 || sites == c.on.Size() {
		return all
	}
	for _, within := range []string{"direct", "ring"} {
		for _, across := range []string{"direct", "ring", "two_shot"} {
			if a, err := algo.Find(coll, "hierarchical."+within+"."+across); err == nil {
				all = append(all, a)
			}
		}
	}
	return all
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
