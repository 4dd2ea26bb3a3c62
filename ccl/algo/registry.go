package algo

import (
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// Algorithm makes plans of one collective.
type Algorithm struct {
	Name string
	Coll dtype.Collective
	Doc  string // one line
	Make func(plan.Spec) (*plan.Plan, error)
}

// algorithms is the registry: a new algorithm is a file and a line here.
var algorithms = []Algorithm{
	entry("binomial", dtype.Broadcast, "a binomial tree from the root; log n steps", broadcastBinomial),
	entry("linear", dtype.Scatter, "the root sends each rank its block", scatterLinear),
	entry("linear", dtype.Gather, "every rank sends its block to the root", gatherLinear),
	entry("direct", dtype.AllGather, "every rank sends its block to every other; one exchange", allGatherDirect),
	entry("ring", dtype.AllGather, "blocks travel around a ring; only neighbours talk", allGatherRing),
	entry("binomial", dtype.Reduce, "a binomial tree to the root; log n steps", reduceBinomial),
	entry("direct", dtype.Reduce, "every rank sends to the root, which reduces in rank order", reduceDirect),
	entry("direct", dtype.ReduceScatter, "every rank gets its block from all others and reduces in rank order", reduceScatterDirect),
	entry("ring", dtype.ReduceScatter, "partial results travel around a ring; only neighbours talk", reduceScatterRing),
	entry("direct", dtype.AllReduce, "all-pairs, one-shot: every rank gets every block and reduces in rank order", allReduceDirect),
	entry("ring", dtype.AllReduce, "reduce-scatter and all-gather around a ring; fewest bytes", allReduceRing),
	entry("direct", dtype.AllToAll, "every rank sends to and receives from all others, in rotated order", allToAllDirect),
	entry("pairwise", dtype.AllToAll, "in rounds, with one partner to send to and one to receive from in each", allToAllPairwise),
	entry("dissemination", dtype.Barrier, "signals at doubling distances; log n rounds", barrierDissemination),
}

// design is what an algorithm says about itself for a Spec with two or more ranks. The fields are those of plan.Plan.
type design struct {
	split   int // 0 means 1
	alias   plan.Alias
	program func(rank int) plan.Program
}

// entry completes designs to plans.
func entry(name string, coll dtype.Collective, doc string, designer func(plan.Spec) design) Algorithm {
	return Algorithm{Name: name, Coll: coll, Doc: doc, Make: func(s plan.Spec) (*plan.Plan, error) {
		if s.Coll != coll {
			return nil, fault.New(fault.Invalid, "algorithm %s of %v asked for a plan of %v", name, coll, s)
		}
		if err := s.Validate(); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "algorithm %s", name)
		}
		if !coll.Rooted() && s.Root != 0 {
			return nil, fault.New(fault.Invalid, "algorithm %s: %v has no root, but root is %d; leave it 0", name, coll, s.Root)
		}
		d := designer(s)
		if s.Ranks == 1 {
			d.program = func(int) plan.Program { return alone(s) }
		}
		split := max(d.split, 1)
		if split > plan.MaxSplit {
			return nil, fault.New(fault.NotSupported, "algorithm %s cuts a block into %d chunks, one for each rank; a plan has at most %d",
				name, split, plan.MaxSplit)
		}
		return &plan.Plan{Name: name, Spec: s, Split: split, Chans: 1, Alias: d.alias, Program: d.program}, nil
	}}
}

// alone is what the only rank of a group does: its one block of In becomes its one block of Out.
func alone(s plan.Spec) plan.Program {
	if s.Coll == dtype.Barrier {
		return plan.Program{}
	}
	step := copyStep(out(0), in(0))
	step.Final = s.Coll.Reduces()
	return plan.Program{Lanes: [][]plan.Step{{step}}}
}

// All returns every algorithm, ordered by collective.
func All() []Algorithm { return slices.Clone(algorithms) }

// For returns the algorithms of a collective.
func For(coll dtype.Collective) []Algorithm {
	var some []Algorithm
	for _, a := range algorithms {
		if a.Coll == coll {
			some = append(some, a)
		}
	}
	return some
}

// Names returns the names of the algorithms of a collective.
func Names(coll dtype.Collective) []string {
	var names []string
	for _, a := range For(coll) {
		names = append(names, a.Name)
	}
	return names
}

// Find returns the algorithm of a collective that has this name.
func Find(coll dtype.Collective, name string) (Algorithm, error) {
	for _, a := range algorithms {
		if a.Coll == coll && a.Name == name {
			return a, nil
		}
	}
	known := strings.Join(Names(coll), ", ")
	if known == "" {
		return Algorithm{}, fault.New(fault.Invalid, "%v has no algorithms", coll)
	}
	return Algorithm{}, fault.New(fault.Invalid, "unknown algorithm %q for %v; known: %s", name, coll, known)
}
