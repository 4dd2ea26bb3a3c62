// Package measured makes of measured times what the library chooses algorithms by: rows of a table,
// and the costs of a network.
package measured

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/internal/park"
)

// To replace the algorithm that the library would choose without the measurement, another one must
// be faster by Margin in the median of the ratios of blocks that were measured one after the other,
// faster in the median of every run, and, against noise, faster in three of four such ratios. So
// rows do not flap from one measurement to the next, and a machine that is slower for a while does
// no harm.
const Margin = 1.05

// The winner for beyondBytes is taken as the winner for all larger sizes: from there on, only the
// number of reads and writes of memory counts.
const beyondBytes = 4 << 20

// Candidate is an algorithm that may be measured.
type Candidate struct {
	Name    string
	windows bool // it reads windows
	ordered bool // it reduces in the order of the ranks, or not at all
}

// Candidates returns the algorithms of a collective that run on a group with the links that groups
// have. On several hosts of several ranks, those with levels are among them.
func Candidates(coll dtype.Collective, on *topo.Group, shared bool, channels int) (all []Candidate) {
	levels := on.Levels()
	each, pairs := algo.For(coll), algo.Variants(coll, 2)
	if levels {
		each = append(slices.Clip(each), pairs...)
	}
	for _, a := range each {
		if a.Name == "hierarchical" && (!levels || len(pairs) > 0) {
			continue // it has one level, or is one of the pairs
		}
		p, err := a.OnHosts(plan.Spec{Coll: coll, Ranks: on.Size()}, on)
		if err != nil || p.Chans > channels {
			continue
		}
		c := Candidate{a.Name, p.Needs&plan.Gets != 0, !coll.Reduces() || a.Level >= 4}
		if shared || !c.windows {
			all = append(all, c)
		}
	}
	return all
}

// Cell holds the times of the algorithms for one size, in the order of the candidates.
type Cell struct {
	Bytes int64       `json:"size"`
	Times [][]float64 `json:"times_s"` // of a call, for each block of calls; candidates given up early have fewer
	Turns []int       `json:"turns"`   // calls of a block
	Wrong []int64     `json:"wrong"`   // elements
}

// Timing holds the times of the blocks of a candidate for one size, by run.
type Timing [][]float64

// Median returns the median of all blocks.
func (t Timing) Median() float64 {
	all := slices.Concat(t...)
	slices.Sort(all)
	return all[len(all)/2]
}

// ratios returns, in ascending order, how many times longer t took than other, for each pair of
// blocks that were measured one after the other.
func (t Timing) ratios(other Timing) (all []float64) {
	for run := range t {
		for block := range min(len(t[run]), len(other[run])) {
			all = append(all, t[run][block]/other[run][block])
		}
	}
	slices.Sort(all)
	return all
}

// Ratio returns the median of ratios.
func (t Timing) Ratio(other Timing) float64 {
	all := t.ratios(other)
	return all[len(all)/2]
}

// beats reports whether t is faster than other by more than Margin and noise, and faster in every
// run.
func (t Timing) beats(other Timing) bool {
	for run := range t {
		if t[run:run+1].Ratio(other[run:run+1]) >= 1 {
			return false
		}
	}
	all := t.ratios(other)
	return all[len(all)/2]*Margin < 1 && all[len(all)*3/4] < 1
}

// Measured holds the times of the candidates of one collective on one group.
type Measured struct {
	Coll       dtype.Collective
	On         *topo.Group
	Candidates []Candidate
	Sizes      []int64
	Times      [][]Timing // size × candidate
}

// Add adds the cells of one more run. Small requested sizes can result in the same size, since
// every rank has at least one element; such a size counts once.
func (m *Measured) Add(run []Cell) error {
	first, s := len(m.Sizes) == 0, 0
	for k, cell := range run {
		for i, wrong := range cell.Wrong {
			if wrong > 0 {
				return fmt.Errorf("%s of %d bytes: %d elements were wrong", m.Candidates[i].Name, cell.Bytes, wrong)
			}
		}
		if k > 0 && cell.Bytes <= run[k-1].Bytes {
			continue
		}
		if first {
			m.Sizes, m.Times = append(m.Sizes, cell.Bytes), append(m.Times, make([]Timing, len(m.Candidates)))
		}
		if s >= len(m.Sizes) || m.Sizes[s] != cell.Bytes || len(cell.Times) != len(m.Candidates) {
			return errors.New("the runs have measured different things")
		}
		for i, blocks := range cell.Times {
			m.Times[s][i] = append(m.Times[s][i], blocks)
		}
		s++
	}
	if s == 0 || s != len(m.Sizes) {
		return errors.New("a run has not measured all sizes")
	}
	return nil
}

// kind is a kind of group; each size has a winner for every kind.
type kind struct{ noWindows, ordered bool }

// kinds are groups with everything that the host offers, groups without windows, groups that reduce
// in the order of the ranks, and groups with both restrictions.
var kinds = [...]kind{{}, {noWindows: true}, {ordered: true}, {true, true}}

func (k kind) runs(c Candidate) bool {
	return (!k.noWindows || !c.windows) && (!k.ordered || c.ordered)
}

// Picks are the indices of the winning candidates, one for each of kinds; -1 if none runs.
type Picks [len(kinds)]int

// Pick finds the winners for each size, or one for all sizes if ranks do not know the size.
func (m *Measured) Pick() []Picks {
	all := make([]Picks, len(m.Sizes))
	for k, kind := range kinds {
		var allowed []int
		for i, c := range m.Candidates {
			if kind.runs(c) {
				allowed = append(allowed, i)
			}
		}
		before := -1
		if !tune.Sized(m.Coll) {
			before = m.overall(allowed, m.Incumbent(0, k))
		}
		for s := range m.Sizes {
			if tune.Sized(m.Coll) {
				before = m.winner(s, allowed, m.Incumbent(s, k), before)
			}
			all[s][k] = before
			// Of several rows for a size, each group takes the first that it can run.
			for _, earlier := range all[s][:k] {
				if earlier >= 0 && kind.runs(m.Candidates[earlier]) {
					all[s][k] = earlier
					break
				}
			}
		}
	}
	return all
}

// Incumbent returns the candidate that the library chooses without the measurement for a size and
// one of kinds; -1 if that one was not measured.
func (m *Measured) Incumbent(s, k int) int {
	on, wishes, size := m.On, tune.Wishes{}, m.Sizes[s]
	if kinds[k].noWindows {
		on = on.WithSlot(0)
	}
	if kinds[k].ordered {
		wishes.Determinism = 4
	}
	if !tune.Sized(m.Coll) {
		size = 0
	}
	name := tune.Choose(tune.Call{Coll: m.Coll, Bytes: size}, on, &wishes)
	return slices.IndexFunc(m.Candidates, func(c Candidate) bool { return c.Name == name })
}

// winner returns the fastest candidate for a size, unless incumbent is hardly slower. Among equals
// it returns before, the winner of the previous size.
func (m *Measured) winner(s int, allowed []int, incumbent, before int) int {
	best := -1
	times := m.Times[s]
	for _, i := range allowed {
		if best < 0 || times[i].Ratio(times[best]) < 1 {
			best = i
		}
	}
	known := incumbent >= 0 && slices.Contains(allowed, incumbent)
	switch {
	case best < 0:
	case known && !times[best].beats(times[incumbent]):
		return incumbent
	case before >= 0 && !times[best].beats(times[before]) && (!known || times[before].beats(times[incumbent])):
		return before
	}
	return best
}

// overall returns the candidate that is fastest over all sizes, in the geometric mean, unless
// Incumbent is hardly slower.
func (m *Measured) overall(allowed []int, incumbent int) int {
	best := -1
	for _, i := range allowed {
		if best < 0 || m.mean(i) < m.mean(best) {
			best = i
		}
	}
	if best >= 0 && slices.Contains(allowed, incumbent) && m.mean(best)*Margin >= m.mean(incumbent) {
		return incumbent
	}
	return best
}

// mean returns the geometric mean, over all sizes, of how much longer candidate i took than the
// first.
func (m *Measured) mean(i int) float64 {
	sum := 0.0
	for s := range m.Sizes {
		sum += math.Log(m.Times[s][i].Ratio(m.Times[s][0]))
	}
	return math.Exp(sum / float64(len(m.Sizes)))
}

// RunnerUp returns the fastest candidate for a size other than i, -1 if there is none.
func (m *Measured) RunnerUp(s, i int) int {
	best := -1
	for k := range m.Candidates {
		if k != i && (best < 0 || m.Times[s][k].Ratio(m.Times[s][best]) < 1) {
			best = k
		}
	}
	return best
}

// Band is a run of adjacent sizes with the same winners.
type Band struct {
	First, Last int // indices of sizes
	Winners     Picks
	Rows        []tune.Row
}

// Bands makes the rows. The limit between two bands is their geometric mean.
func (m *Measured) Bands(FirstRanks int) (all []Band) {
	picked := m.Pick()
	for s, w := range picked {
		if s > 0 && w == picked[s-1] {
			all[len(all)-1].Last = s
			continue
		}
		all = append(all, Band{First: s, Last: s, Winners: w})
	}
	for i := range all {
		b := &all[i]
		row := tune.Row{
			Coll: m.Coll, First: FirstRanks, Last: m.On.Size(),
			Oversubscribed: tune.If(m.On.Oversubscribed()), Hosts: tune.SeveralHosts,
		}
		if hosts := len(m.On.Hosts()); hosts == 1 || m.On.Levels() {
			row.Hosts = tune.Hosts{First: hosts, Last: hosts}
		}
		if m.On.Levels() && m.On.Slot() > 0 {
			row.First = m.On.Size() // with fewer, hosts would have other numbers of ranks
		}
		largest := m.Sizes[b.Last]
		switch {
		case !tune.Sized(m.Coll) || i == len(all)-1 && largest >= beyondBytes:
			row.Bytes = tune.AnySize
		case i == len(all)-1:
			row.Bytes = largest
		default:
			row.Bytes = between(largest, m.Sizes[b.Last+1])
		}
		seen := map[int]bool{-1: true}
		for _, w := range b.Winners {
			if !seen[w] {
				seen[w] = true
				row.Algorithm = m.Candidates[w].Name
				b.Rows = append(b.Rows, row)
			}
		}
	}
	return all
}

// between returns the geometric mean of two sizes, rounded down to a multiple of 1 MiB, 1 KiB or 4
// bytes, but at least a.
func between(a, b int64) int64 {
	mean := max(a, int64(math.Sqrt(float64(a)*float64(b))))
	unit := int64(4)
	for _, larger := range []int64{1 << 10, 1 << 20} {
		if mean >= larger {
			unit = larger
		}
	}
	return max(a, mean/unit*unit)
}

// FirstRanks returns the first number of ranks for which a measurement holds: one more than the
// next smaller measured number, or than the next smaller power of two, whichever is larger.
func FirstRanks(ranks int, all []int) int {
	first := 1
	for first*2 < ranks {
		first *= 2
	}
	for _, other := range all {
		if other < ranks {
			first = max(first, other)
		}
	}
	return max(2, first+1)
}

// Group returns what the library will know of a group that is measured: its ranks are spread over
// network namespaces of this machine. shared is whether the ranks of a host share memory.
func Group(ranks, hosts, slot int, shared bool) (*topo.Group, error) {
	return groupOn(park.Affinity().String(), park.Cores(), ranks, hosts, slot, shared)
}

// GroupOn is Group on a machine with that many cores.
func GroupOn(cores, ranks, hosts, slot int, shared bool) (*topo.Group, error) {
	return groupOn(fmt.Sprintf("0-%d", cores-1), cores, ranks, hosts, slot, shared)
}

// groupOn is Group for ranks that may use some cores.
func groupOn(cores string, usable, ranks, hosts, slot int, shared bool) (*topo.Group, error) {
	said := make([]topo.Rank, ranks)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: ranks, Place: topo.Place{Network: uint64(rank * hosts / ranks)},
			Cores: cores, Usable: usable, Slot: slot}
		if shared {
			said[rank].Transports = []string{"shm"}
		}
	}
	on, err := topo.Agree(said)
	if err == nil && len(on.Hosts()) < ranks {
		on = on.WithSlot(on.Room())
	}
	return on, err
}
