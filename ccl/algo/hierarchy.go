package algo

import (
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// A hierarchical algorithm is named hierarchical.INNER.OUTER, or hierarchical.INNER.MIDDLE.OUTER
// with three levels, by the algorithms that run in the levels of the Shape. Plain "hierarchical"
// uses defaultParts, with as many levels as the Shape has.
const hierarchicalName = "hierarchical"

// inners are the algorithms that can run below the top level of an all_reduce: a reduce_scatter and
// the all_gather that goes with it.
var inners = []struct{ name, reduceScatter, allGather string }{
	{"direct", "direct", "direct"},
	{"ring", "ring", "ring"},
	{"halving", "recursive_halving", "recursive_doubling"},
	{"pairwise", "pairwise", "pairwise"},
	{"bruck", "bruck", "bruck"},
	{"pat", "pat", "pat"},
	{"window", "window", "window"},
}

// registered is For. It is a variable since the registry refers to the hierarchical algorithms,
// which look up others in it.
var registered func(dtype.Collective) []Algorithm

func init() { registered = For }

// flat finds an algorithm that can be a part of a hierarchical one, in a level.
func flat(coll dtype.Collective, name string, level int) (Algorithm, bool) {
	for _, a := range registered(coll) {
		if a.Name == name && composable(a, level) {
			return a, true
		}
	}
	return Algorithm{}, false
}

// composable reports whether an algorithm can be a stage of another, in a level. It must not be
// hierarchical itself. It may use messages or, in the innermost level, whose ranks share memory,
// windows that peers only read.
func composable(a Algorithm, level int) bool {
	if a.Name == hierarchicalName {
		return false
	}
	p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: 2})
	return err == nil && (p.Needs == plan.Messages && p.Win == 0 || level == 0 && p.Needs == plan.Puts|plan.Gets)
}

// parts holds the names of the algorithms of all levels, the innermost first.
type parts []string

// defaultParts are the parts of plain "hierarchical": within a host all ranks reach each other at
// once, between hosts the bytes count.
var defaultParts = parts{"direct", "ring"}

// level returns the name for level l of levels.
func (p parts) level(l, levels int) string {
	if l == levels-1 {
		return p[len(p)-1]
	}
	return p[min(l, len(p)-2)]
}

// partNames are the algorithms that can run in a level, which is the top one or below it.
func partNames(coll dtype.Collective, level int, top bool) []string {
	var names []string
	if coll == dtype.AllReduce && !top {
		for _, in := range inners {
			_, one := flat(dtype.ReduceScatter, in.reduceScatter, level)
			_, two := flat(dtype.AllGather, in.allGather, level)
			if one && two {
				names = append(names, in.name)
			}
		}
		return names
	}
	for _, a := range registered(coll) {
		if composable(a, level) {
			names = append(names, a.Name)
		}
	}
	return names
}

// Variants returns the hierarchical algorithms of a collective with the given number of levels, 2
// or 3: one for each choice of an algorithm for each level. It returns none for collectives without
// hierarchical algorithms that are made of others.
func Variants(coll dtype.Collective, levels int) []Algorithm {
	if designers[coll] == nil || levels < 2 || levels > plan.MaxLevels {
		return nil
	}
	names := []parts{nil}
	for l := range levels {
		var longer []parts
		for _, p := range names {
			for _, name := range partNames(coll, l, l == levels-1) {
				longer = append(longer, append(slices.Clip(p), name))
			}
		}
		names = longer
	}
	var all []Algorithm
	for _, p := range names {
		all = append(all, hierarchical(coll, p))
	}
	return all
}

// findHierarchical is Find for dotted names.
func findHierarchical(coll dtype.Collective, name string) (Algorithm, error) {
	words := strings.Split(name, ".")
	if designers[coll] == nil {
		return Algorithm{}, fault.New(fault.Invalid,
			"unknown algorithm %q for %v: it has no algorithms made of others", name, coll)
	}
	if words[0] != hierarchicalName || len(words) < 3 || len(words) > 1+plan.MaxLevels {
		return Algorithm{}, fault.New(fault.Invalid,
			"unknown algorithm %q for %v; names with dots are hierarchical.INNER.OUTER or hierarchical.INNER.MIDDLE.OUTER",
			name, coll)
	}
	for l, word := range words[1:] {
		known := partNames(coll, l, l == len(words)-2)
		if !slices.Contains(known, word) {
			return Algorithm{}, fault.New(fault.Invalid, "algorithm %q for %v: level %d cannot be %q; known there: %s",
				name, coll, l, word, strings.Join(known, ", "))
		}
	}
	return hierarchical(coll, words[1:]), nil
}

// designers make a hierarchical plan's design from its parts and the sizes of its levels, of which
// there are two or three.
var designers = map[dtype.Collective]func(plan.Spec, parts, []int) (design, error){
	dtype.AllReduce:     allReduceHierarchical,
	dtype.ReduceScatter: reduceScatterHierarchical,
	dtype.AllGather:     allGatherHierarchical,
}

// hierarchical returns the algorithm made of these parts.
func hierarchical(coll dtype.Collective, p parts) Algorithm {
	name := hierarchicalName + "." + strings.Join(p, ".")
	a := composition(name, coll, strings.Join(p, " within, ")+" across", p)
	if !coll.Reduces() {
		return a
	}
	a.Level = 3 // not rank order, since each level puts brackets around its sums
	for l, part := range p {
		of := coll
		if l < len(p)-1 {
			of, part = lower(coll, dtype.ReduceScatter, part)
		}
		if sub, ok := flat(of, part, l); ok {
			a.Level = min(a.Level, sub.Level)
		}
	}
	return a
}

// lower returns the collective and the algorithm that a name stands for in a level below the top.
// In all_reduce a name stands for a pair, and half selects one of the pair.
func lower(coll, half dtype.Collective, name string) (dtype.Collective, string) {
	if coll != dtype.AllReduce {
		return coll, name
	}
	for _, in := range inners {
		if in.name == name && half == dtype.ReduceScatter {
			return half, in.reduceScatter
		} else if in.name == name {
			return half, in.allGather
		}
	}
	return half, name
}

// composition returns an Algorithm whose design may fail, since the designs of its parts may fail.
func composition(name string, coll dtype.Collective, doc string, p parts) Algorithm {
	a := entry(name, coll, doc, nil).on(func(s plan.Spec) []int { return levels(s, len(p)) })
	a.Make = func(s plan.Spec) (*plan.Plan, error) {
		var wrong error
		made, err := entry(name, coll, doc, func(s plan.Spec) design {
			d, err := hierarchicalDesign(s, p)
			wrong = err
			return d
		}).Make(s)
		if wrong != nil {
			return nil, wrong
		}
		return made, err
	}
	return a
}

// hierarchicalDesign chooses the levels. With a single level, the algorithm for the top level does
// everything.
func hierarchicalDesign(s plan.Spec, p parts) (design, error) {
	if s.Ranks == 1 {
		return design{alias: plan.InPlace}, nil
	}
	sizes := levels(s, len(p))
	if len(sizes) > 1 {
		return designers[s.Coll](s, p, sizes)
	}
	sub, err := subPlan(s.Coll, p.level(0, 1), s.Ranks, len(p)-1)
	if err != nil {
		return design{}, err
	}
	return design{split: sub.Split, chans: sub.Chans, alias: sub.Alias, program: sub.Program}, nil
}

// composed returns the design of a plan that is made of others. All ranks have the same number of
// chunks in their windows.
func composed(split int, subs []*plan.Plan, program func(rank int) plan.Program) design {
	d := design{split: split, chans: mostChans(subs), alias: plan.InPlace, program: program}
	for _, sub := range subs {
		d.needs |= sub.Needs
		d.flags += sub.Flags
	}
	if d.needs&plan.Gets != 0 {
		prog := program(0)
		d.win = len(prog.Win)
	}
	return d
}

// subPlan makes a plan for the ranks of one level.
func subPlan(coll dtype.Collective, name string, ranks, level int) (*plan.Plan, error) {
	a, ok := flat(coll, name, level)
	if !ok {
		return nil, fault.New(fault.Invalid, "%v has no algorithm %q that can be a part of another", coll, name)
	}
	return a.Make(plan.Spec{Coll: coll, Ranks: ranks})
}

// levels returns the sizes of the levels of s that have more than one rank, the innermost first.
// Without a Shape they are as equal as possible, the larger levels inside. Then there may be fewer
// levels than wanted, and only one if the number of ranks is prime.
func levels(s plan.Spec, want int) []int {
	if s.Shape != (plan.Shape{}) {
		var sizes []int
		for _, n := range s.Shape[:s.Shape.Levels()] {
			if n > 1 {
				sizes = append(sizes, n)
			}
		}
		if len(sizes) > 0 {
			return sizes
		}
	}
	for ; want > 1 && s.Ranks > 1; want-- {
		best := plan.Shape{}
		for _, shape := range Shapes(s.Ranks, want) {
			if best == (plan.Shape{}) || shape[0] < best[0] || shape[0] == best[0] && shape[1] < best[1] {
				if slices.IsSortedFunc(shape[:want], func(a, b int) int { return b - a }) {
					best = shape
				}
			}
		}
		if best != (plan.Shape{}) {
			return best[:want]
		}
	}
	return []int{s.Ranks}
}

// Shapes returns the grids of n ranks with the given number of levels, each of two ranks or more.
func Shapes(n, levels int) []plan.Shape {
	var shapes []plan.Shape
	var extend func(shape plan.Shape, l, left int)
	extend = func(shape plan.Shape, l, left int) {
		if l == levels-1 {
			if left > 1 {
				shape[l] = left
				shapes = append(shapes, shape)
			}
			return
		}
		for size := 2; size*2 <= left; size++ {
			if left%size == 0 {
				shape[l] = size
				extend(shape, l+1, left/size)
			}
		}
	}
	if levels >= 1 && levels <= plan.MaxLevels {
		extend(plan.Shape{}, 0, n)
	}
	return shapes
}

// ranksOf returns the ranks of a group, in order.
func ranksOf(g group) []int {
	ranks := make([]int, g.size)
	for i := range ranks {
		ranks[i] = g.rank(i)
	}
	return ranks
}

// product returns the product of sizes.
func product(sizes []int) int {
	p := 1
	for _, n := range sizes {
		p *= n
	}
	return p
}

// commonSplit returns the fewest chunks that are a multiple of the chunks of each plan.
func commonSplit(plans []*plan.Plan) int {
	split := 1
	for _, p := range plans {
		a, b := split, p.Split
		for b != 0 {
			a, b = b, a%b
		}
		split = split / a * p.Split
	}
	return split
}

// mostChans returns the most channels that any of the plans uses.
func mostChans(plans []*plan.Plan) int {
	chans := 1
	for _, p := range plans {
		chans = max(chans, p.Chans)
	}
	return chans
}

func inPlace(p *plan.Plan) bool { return p.Alias&plan.InPlace != 0 }
