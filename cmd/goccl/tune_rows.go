package main

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
)

// To replace the algorithm that the library would choose without the measurement, another one must
// be faster by margin in the median of the ratios of blocks that were measured one after the other,
// faster in the median of every run, and, against noise, faster in three of four such ratios. So
// rows do not flap from one measurement to the next, and a machine that is slower for a while does
// no harm.
const margin = 1.05

// The winner for beyondBytes is taken as the winner for all larger sizes: from there on, only the
// number of reads and writes of memory counts.
const beyondBytes = 4 << 20

// candidate is an algorithm that may be measured.
type candidate struct {
	name    string
	windows bool // it reads windows
	ordered bool // it reduces in the order of the ranks, or not at all
}

// candidates returns the algorithms of a collective that run on a group with the links that groups
// have. On several hosts of several ranks, those with levels are among them.
func candidates(coll dtype.Collective, on *topo.Group, shared bool, channels int) (all []candidate) {
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
		c := candidate{a.Name, p.Needs&plan.Gets != 0, !coll.Reduces() || a.Level >= 4}
		if shared || !c.windows {
			all = append(all, c)
		}
	}
	return all
}

// timing holds the times of the blocks of a candidate for one size, by run.
type timing [][]float64

// median returns the median of all blocks.
func (t timing) median() float64 {
	all := slices.Concat(t...)
	slices.Sort(all)
	return all[len(all)/2]
}

// ratios returns, in ascending order, how many times longer t took than other, for each pair of
// blocks that were measured one after the other.
func (t timing) ratios(other timing) (all []float64) {
	for run := range t {
		for block := range min(len(t[run]), len(other[run])) {
			all = append(all, t[run][block]/other[run][block])
		}
	}
	slices.Sort(all)
	return all
}

// ratio returns the median of ratios.
func (t timing) ratio(other timing) float64 {
	all := t.ratios(other)
	return all[len(all)/2]
}

// beats reports whether t is faster than other by more than margin and noise, and faster in every
// run.
func (t timing) beats(other timing) bool {
	for run := range t {
		if t[run:run+1].ratio(other[run:run+1]) >= 1 {
			return false
		}
	}
	all := t.ratios(other)
	return all[len(all)/2]*margin < 1 && all[len(all)*3/4] < 1
}

// measured holds the times of the candidates of one collective on one group.
type measured struct {
	coll       dtype.Collective
	on         *topo.Group
	candidates []candidate
	sizes      []int64
	times      [][]timing // size × candidate
}

// add adds the cells of one more run. Small requested sizes can result in the same size, since
// every rank has at least one element; such a size counts once.
func (m *measured) add(run []tuneCell) error {
	first, s := len(m.sizes) == 0, 0
	for k, cell := range run {
		for i, wrong := range cell.Wrong {
			if wrong > 0 {
				return fmt.Errorf("%s of %d bytes: %d elements were wrong", m.candidates[i].name, cell.Bytes, wrong)
			}
		}
		if k > 0 && cell.Bytes <= run[k-1].Bytes {
			continue
		}
		if first {
			m.sizes, m.times = append(m.sizes, cell.Bytes), append(m.times, make([]timing, len(m.candidates)))
		}
		if s >= len(m.sizes) || m.sizes[s] != cell.Bytes || len(cell.Times) != len(m.candidates) {
			return errors.New("the runs have measured different things")
		}
		for i, blocks := range cell.Times {
			m.times[s][i] = append(m.times[s][i], blocks)
		}
		s++
	}
	if s == 0 || s != len(m.sizes) {
		return errors.New("a run has not measured all sizes")
	}
	return nil
}

// kind is a kind of group; each size has a winner for every kind.
type kind struct{ noWindows, ordered bool }

// kinds are groups with everything that the host offers, groups without windows, groups that reduce
// in the order of the ranks, and groups with both restrictions.
var kinds = [...]kind{{}, {noWindows: true}, {ordered: true}, {true, true}}

func (k kind) runs(c candidate) bool {
	return (!k.noWindows || !c.windows) && (!k.ordered || c.ordered)
}

// picks are the indices of the winning candidates, one for each of kinds; -1 if none runs.
type picks [len(kinds)]int

// pick finds the winners for each size, or one for all sizes if ranks do not know the size.
func (m *measured) pick() []picks {
	all := make([]picks, len(m.sizes))
	for k, kind := range kinds {
		var allowed []int
		for i, c := range m.candidates {
			if kind.runs(c) {
				allowed = append(allowed, i)
			}
		}
		before := -1
		if !tune.Sized(m.coll) {
			before = m.overall(allowed, m.incumbent(0, k))
		}
		for s := range m.sizes {
			if tune.Sized(m.coll) {
				before = m.winner(s, allowed, m.incumbent(s, k), before)
			}
			all[s][k] = before
			// Of several rows for a size, each group takes the first that it can run.
			for _, earlier := range all[s][:k] {
				if earlier >= 0 && kind.runs(m.candidates[earlier]) {
					all[s][k] = earlier
					break
				}
			}
		}
	}
	return all
}

// incumbent returns the candidate that the library chooses without the measurement for a size and
// one of kinds; -1 if that one was not measured.
func (m *measured) incumbent(s, k int) int {
	on, wishes, size := m.on, tune.Wishes{}, m.sizes[s]
	if kinds[k].noWindows {
		on = on.WithSlot(0)
	}
	if kinds[k].ordered {
		wishes.Determinism = 4
	}
	if !tune.Sized(m.coll) {
		size = 0
	}
	name := tune.Choose(tune.Call{Coll: m.coll, Bytes: size}, on, &wishes)
	return slices.IndexFunc(m.candidates, func(c candidate) bool { return c.name == name })
}

// winner returns the fastest candidate for a size, unless incumbent is hardly slower. Among equals
// it returns before, the winner of the previous size.
func (m *measured) winner(s int, allowed []int, incumbent, before int) int {
	best := -1
	times := m.times[s]
	for _, i := range allowed {
		if best < 0 || times[i].ratio(times[best]) < 1 {
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
// incumbent is hardly slower.
func (m *measured) overall(allowed []int, incumbent int) int {
	best := -1
	for _, i := range allowed {
		if best < 0 || m.mean(i) < m.mean(best) {
			best = i
		}
	}
	if best >= 0 && slices.Contains(allowed, incumbent) && m.mean(best)*margin >= m.mean(incumbent) {
		return incumbent
	}
	return best
}

// mean returns the geometric mean, over all sizes, of how much longer candidate i took than the
// first.
func (m *measured) mean(i int) float64 {
	sum := 0.0
	for s := range m.sizes {
		sum += math.Log(m.times[s][i].ratio(m.times[s][0]))
	}
	return math.Exp(sum / float64(len(m.sizes)))
}

// runnerUp returns the fastest candidate for a size other than i, -1 if there is none.
func (m *measured) runnerUp(s, i int) int {
	best := -1
	for k := range m.candidates {
		if k != i && (best < 0 || m.times[s][k].ratio(m.times[s][best]) < 1) {
			best = k
		}
	}
	return best
}

// band is a run of adjacent sizes with the same winners.
type band struct {
	first, last int // indices of sizes
	winners     picks
	rows        []tune.Row
}

// bands makes the rows. The limit between two bands is their geometric mean.
func (m *measured) bands(firstRanks int) (all []band) {
	picked := m.pick()
	for s, w := range picked {
		if s > 0 && w == picked[s-1] {
			all[len(all)-1].last = s
			continue
		}
		all = append(all, band{first: s, last: s, winners: w})
	}
	for i := range all {
		b := &all[i]
		row := tune.Row{
			Coll: m.coll, First: firstRanks, Last: m.on.Size(),
			Oversubscribed: tune.If(m.on.Oversubscribed()), Hosts: tune.SeveralHosts,
		}
		if hosts := len(m.on.Hosts()); hosts == 1 || m.on.Levels() {
			row.Hosts = tune.Hosts{First: hosts, Last: hosts}
		}
		if m.on.Levels() && m.on.Slot() > 0 {
			row.First = m.on.Size() // with fewer, hosts would have other numbers of ranks
		}
		largest := m.sizes[b.last]
		switch {
		case !tune.Sized(m.coll) || i == len(all)-1 && largest >= beyondBytes:
			row.Bytes = tune.AnySize
		case i == len(all)-1:
			row.Bytes = largest
		default:
			row.Bytes = between(largest, m.sizes[b.last+1])
		}
		seen := map[int]bool{-1: true}
		for _, w := range b.winners {
			if !seen[w] {
				seen[w] = true
				row.Algorithm = m.candidates[w].name
				b.rows = append(b.rows, row)
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

// firstRanks returns the first number of ranks for which a measurement stands: one more than the
// next smaller measured number, or than the next smaller power of two, whichever is larger.
func firstRanks(ranks int, all []int) int {
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
