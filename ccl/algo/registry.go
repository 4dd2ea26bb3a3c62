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
	Name  string
	Coll  dtype.Collective
	Doc   string // one line
	Level int    // level of determinism, as in verify.Level: the least over all rank counts from 3 on
	Make  func(plan.Spec) (*plan.Plan, error)
	Grid  func(plan.Spec) []int // sizes of the levels of ranks, the innermost first; nil without levels
}

// level sets a level of determinism other than the default of entry.
func (a Algorithm) level(l int) Algorithm {
	a.Level = l
	return a
}

// on sets the grid of an algorithm.
func (a Algorithm) on(grid func(plan.Spec) []int) Algorithm {
	a.Grid = grid
	return a
}

// algorithms is the registry: a new algorithm is a file and a line here.
var algorithms = []Algorithm{
	entry("binomial", dtype.Broadcast, "a binomial tree from the root; log n steps", broadcastBinomial),
	entry("flat", dtype.Broadcast, "the root sends to every other rank", broadcastFlat),
	entry("chain", dtype.Broadcast, "segments travel along a chain of ranks", broadcastChain),
	entry("double_binary_tree", dtype.Broadcast,
		"two trees, each for half of the block; leaves of one are inner ranks of the other", broadcastDoubleTree),
	entry("scatter_allgather", dtype.Broadcast,
		"a binomial scatter, then a ring; no rank sends much more than the block twice", broadcastScatterAllGather),
	entry("linear", dtype.Scatter, "the root sends each rank its block", scatterLinear),
	entry("binomial", dtype.Scatter, "a binomial tree from the root; log n steps", scatterBinomial),
	entry("linear", dtype.Gather, "every rank sends its block to the root", gatherLinear),
	entry("binomial", dtype.Gather, "a binomial tree to the root; log n steps", gatherBinomial),
	entry("direct", dtype.AllGather, "every rank sends its block to every other; one exchange", allGatherDirect),
	entry("ring", dtype.AllGather, "blocks travel around a ring; only neighbours talk", allGatherRing),
	entry("pairwise", dtype.AllGather,
		"in rounds, with one partner to send to and one to receive from in each", allGatherPairwise),
	entry("recursive_doubling", dtype.AllGather,
		"ranks swap all they have at doubling distances; log n steps", allGatherDoubling),
	entry("bruck", dtype.AllGather,
		"blocks double in every step, for any number of ranks; log n steps", allGatherBruck),
	entry("pat", dtype.AllGather,
		"a tree for each block, all at once; small messages go far, large ones to neighbours", allGatherPAT),
	entry("binomial", dtype.Reduce, "a binomial tree to the root; log n steps", reduceBinomial).level(3),
	entry("flat", dtype.Reduce, "every rank sends to the root, which reduces in rank order", reduceFlat).level(4),
	entry("chain", dtype.Reduce,
		"segments travel along the chain of ranks and are reduced in rank order", reduceChain).level(4),
	entry("double_binary_tree", dtype.Reduce,
		"two trees, each for half of the block; leaves of one are inner ranks of the other", reduceDoubleTree),
	entry("reduce_scatter_gather", dtype.Reduce,
		"recursive halving, then a binomial gather to the root; all ranks share the reducing",
		reduceScatterGather).level(3),
	entry("direct", dtype.ReduceScatter,
		"every rank gets its block from all others and reduces in rank order", reduceScatterDirect).level(4),
	entry("ring", dtype.ReduceScatter, "partial results travel around a ring; only neighbours talk", reduceScatterRing),
	entry("pairwise", dtype.ReduceScatter,
		"in rounds, with one partner to send to and one to receive from in each", reduceScatterPairwise),
	entry("recursive_halving", dtype.ReduceScatter,
		"ranks swap halves of what they have at halving distances; log n steps", reduceScatterHalving).level(3),
	entry("bruck", dtype.ReduceScatter,
		"blocks halve in every step, for any number of ranks; log n steps", reduceScatterBruck),
	entry("pat", dtype.ReduceScatter,
		"a tree for each block, all at once; large messages go to neighbours, small ones far", reduceScatterPAT),
	entry("direct", dtype.AllReduce,
		"all-pairs, one-shot: every rank gets every block and reduces in rank order", allReduceDirect).level(4),
	entry("ring", dtype.AllReduce, "reduce-scatter and all-gather around a ring; fewest bytes", allReduceRing),
	entry("bidirectional_ring", dtype.AllReduce,
		"two rings in opposite directions, each for half of the block", allReduceBidirectionalRing),
	entry("segmented_ring", dtype.AllReduce, "a ring whose chunks travel in segments", allReduceSegmentedRing),
	entry("naive", dtype.AllReduce, "a binomial tree to rank 0 and back", allReduceNaive).level(3),
	entry("recursive_doubling", dtype.AllReduce,
		"whole blocks are swapped at doubling distances; log n steps", allReduceRecursiveDoubling).level(3),
	entry("butterfly", dtype.AllReduce,
		"recursive doubling with a radix for each prime factor of n", allReduceButterfly).level(3),
	entry("rabenseifner", dtype.AllReduce,
		"recursive halving, then doubling; fewest bytes in log n steps", allReduceRabenseifner).level(3),
	entry("binary_tree", dtype.AllReduce, "up and down a binary tree, in segments", allReduceBinaryTree).level(3),
	entry("double_binary_tree", dtype.AllReduce,
		"two trees, each for half of the block; leaves of one are inner ranks of the other", allReduceDoubleBinaryTree),
	entry("bcube", dtype.AllReduce,
		"Rabenseifner's with a radix for each prime factor of n; fewest bytes", allReduceBcube).level(3),
	entry("torus_2d", dtype.AllReduce, "rings along rows and columns", allReduceTorus2D).on(grid),
	entry("mesh_2d", dtype.AllReduce, "lines along rows and columns, in both directions", allReduceMesh2D).on(grid),
	entry("two_shot", dtype.AllReduce,
		"all-pairs reduce-scatter in rank order, then all-pairs all-gather", allReduceTwoShot).level(4),
	entry("window", dtype.Broadcast, "every rank reads the root's window", broadcastWindow),
	entry("window", dtype.Scatter, "every rank reads its block out of the root's window", scatterWindow),
	entry("window", dtype.Gather, "the root reads the windows of all ranks; no other waits", gatherWindow),
	entry("window", dtype.AllGather, "every rank reads all windows; one wait", allGatherWindow),
	entry("window", dtype.Reduce,
		"the root reduces all windows in rank order; no other rank waits", reduceWindow).level(4),
	entry("window", dtype.ReduceScatter,
		"every rank reduces its block out of all windows in rank order; one wait", reduceScatterWindow).level(4),
	entry("one_shot", dtype.AllReduce,
		"packets into all windows, then one reduction in rank order", allReduceOneShot).level(4),
	entry("one_shot_window", dtype.AllReduce,
		"every rank reduces all windows in rank order; one wait", allReduceOneShotWindow).level(4),
	entry("two_shot_window", dtype.AllReduce,
		"each rank reduces a slice out of all windows in rank order and reads the others",
		allReduceTwoShotWindow).level(4),
	composition("hierarchical", dtype.AllGather, "across hosts side by side, then within them", defaultParts),
	composition("hierarchical", dtype.ReduceScatter, "within hosts, then across side by side", defaultParts),
	composition("hierarchical", dtype.AllReduce,
		"reduce-scatter within hosts, all-reduce across, all-gather within", defaultParts),
	entry("linear", dtype.AllToAll,
		"every rank sends to and receives from all others, in rotated order", allToAllLinear),
	entry("window", dtype.AllToAll, "every rank reads its blocks out of all windows; one wait", allToAllWindow),
	entry("pairwise", dtype.AllToAll,
		"in rounds, with one partner to send to and one to receive from in each", allToAllPairwise),
	entry("bruck", dtype.AllToAll, "blocks are forwarded at doubling distances; log n rounds", allToAllBruck),
	entry("hierarchical", dtype.AllToAll,
		"collected within hosts, then one message to each other host", allToAllHierarchical).on(hosts),
	entry("2d", dtype.AllToAll, "along the rows of a grid, then along its columns", allToAll2D).on(grid),
	entry("dissemination", dtype.Barrier, "signals at doubling distances; log n rounds", barrierDissemination),
	entry("flags", dtype.Barrier, "every rank signals all others", barrierFlags),
	entry("tree", dtype.Barrier, "up and down a binomial tree; fewest messages", barrierTree),
}

// design is what an algorithm defines of a plan, for a Spec with two or more ranks. Its fields are
// those of plan.Plan.
type design struct {
	split   int // 0 means 1
	chans   int // 0 means 1
	flags   int
	win     int
	needs   plan.Need // 0 means Messages
	alias   plan.Alias
	program func(rank int) plan.Program
}

// entry returns an algorithm that completes designs to plans.
func entry(name string, coll dtype.Collective, doc string, designer func(plan.Spec) design) Algorithm {
	level := 4 // nothing is reduced
	if coll.Reduces() {
		level = 2 // all ranks get the same bits, in every run
	}
	return Algorithm{Name: name, Coll: coll, Doc: doc, Level: level, Make: func(s plan.Spec) (*plan.Plan, error) {
		if s.Coll != coll {
			return nil, fault.New(fault.Invalid, "algorithm %s of %v asked for a plan of %v", name, coll, s)
		}
		if err := s.Validate(); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "algorithm %s", name)
		}
		if !coll.Rooted() && s.Root != 0 {
			return nil, fault.New(fault.Invalid, "algorithm %s: %v has no root, but root is %d; leave it 0",
				name, coll, s.Root)
		}
		d := designer(s)
		if d.needs == 0 {
			d.needs = plan.Messages
		}
		if s.Ranks == 1 {
			d = design{alias: d.alias, program: func(int) plan.Program { return alone(s) }}
		}
		split := max(d.split, 1)
		if split > plan.MaxSplit {
			return nil, fault.New(fault.NotSupported, "algorithm %s cuts a block into %d chunks; a plan has at most %d",
				name, split, plan.MaxSplit)
		}
		return &plan.Plan{Name: name, Spec: s, Split: split, Chans: max(d.chans, 1), Flags: d.flags, Win: d.win,
			Needs: d.needs, Alias: d.alias, Program: d.program}, nil
	}}
}

// alone returns the program of the only rank of a group: its one block of In becomes its one block
// of Out.
func alone(s plan.Spec) plan.Program {
	if s.Coll == dtype.Barrier {
		return plan.Program{}
	}
	step := copyStep(out(0), in(0))
	step.Final = s.Coll.Reduces()
	return plan.Program{Lanes: [][]plan.Step{{step}}}
}

// All returns every algorithm, in the order of the registry.
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

// Find returns the algorithm of a collective with this name.
func Find(coll dtype.Collective, name string) (Algorithm, error) {
	for _, a := range algorithms {
		if a.Coll == coll && a.Name == name {
			return a, nil
		}
	}
	if strings.Contains(name, ".") {
		return findHierarchical(coll, name)
	}
	known := strings.Join(Names(coll), ", ")
	if known == "" {
		return Algorithm{}, fault.New(fault.Invalid, "%v has no algorithms", coll)
	}
	return Algorithm{}, fault.New(fault.Invalid, "unknown algorithm %q for %v; known: %s", name, coll, known)
}
