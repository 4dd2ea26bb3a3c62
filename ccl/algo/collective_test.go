package algo_test

import (
	"math/bits"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// claim is what the comment of an algorithm says that it costs. Amounts are in chunks.
type claim struct {
	name   string
	rounds func(n, root int) int // nil: not claimed
	atMost bool                  // rounds is a bound
	sent   func(n, root int) int // the most that a rank sends
	tmp    func(n, root int) int // the most that a rank keeps
}

// rankCounts are those that the tests of collectives go through.
func rankCounts() []int {
	var counts []int
	for n := 1; n <= 33; n++ {
		counts = append(counts, n)
	}
	return counts
}

// roots are all of a small group, and the first, second and last of a larger one.
func roots(coll dtype.Collective, n int) []int {
	if !coll.Rooted() {
		return []int{0}
	}
	if n > 9 {
		return []int{0, 1, n - 1}
	}
	var all []int
	for root := range n {
		all = append(all, root)
	}
	return all
}

// sound verifies a plan.
func sound(t *testing.T, coll dtype.Collective, name string, n, root int) (*plan.Plan, *verify.Report) {
	t.Helper()
	a, err := algo.Find(coll, name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Make(plan.Spec{Coll: coll, Ranks: n, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Plan(p, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// testClaims proves the plans of some algorithms for all rank counts and roots, and compares them with what is claimed.
func testClaims(t *testing.T, coll dtype.Collective, claims []claim) {
	for _, c := range claims {
		t.Run(c.name, func(t *testing.T) {
			a, err := algo.Find(coll, c.name)
			if err != nil {
				t.Fatal(err)
			}
			least := verify.RankOrder
			for _, n := range rankCounts() {
				for _, root := range roots(coll, n) {
					_, r := sound(t, coll, c.name, n, root)
					if n <= 2 && r.Determinism != verify.RankOrder {
						t.Errorf("%d ranks, root %d: %v, want rank order", n, root, r.Determinism)
					}
					if n > 2 && n <= 17 {
						least = min(least, r.Determinism)
					}
					if n > 1 {
						c.compare(t, n, root, r)
					}
				}
			}
			if int(least) != a.Level {
				t.Errorf("%v, declared level %d", least, a.Level)
			}
		})
	}
}

func (c claim) compare(t *testing.T, n, root int, r *verify.Report) {
	t.Helper()
	sent, tmp := 0, 0
	for _, l := range r.Ranks {
		sent, tmp = max(sent, l.Sent), max(tmp, l.Tmp)
	}
	if want := c.rounds(n, root); r.Rounds > want || r.Rounds < want && !c.atMost {
		t.Errorf("%d ranks, root %d: %d rounds, want %d", n, root, r.Rounds, want)
	}
	if want := c.sent(n, root); sent != want {
		t.Errorf("%d ranks, root %d: a rank sends %d chunks, want %d", n, root, sent, want)
	}
	if want := c.tmp(n, root); tmp != want {
		t.Errorf("%d ranks, root %d: %d chunks of tmp, want %d", n, root, tmp, want)
	}
}

func up(n int) int   { return bits.Len(uint(n - 1)) } // ⌈log₂ n⌉
func down(n int) int { return bits.Len(uint(n)) - 1 } // ⌊log₂ n⌋

func depth(n, _ int) int    { return up(n) }
func others(n, _ int) int   { return n - 1 }
func none(int, int) int     { return 0 }
func allRanks(n, _ int) int { return n }

// folded is the steps of an algorithm for powers of two, which for other rank counts has some more.
func folded(more int) func(n, root int) int {
	return func(n, _ int) int {
		if n == 1<<down(n) {
			return down(n)
		}
		return down(n) + more
	}
}

// segments is how many the pipelined algorithms cut a path's data into.
const segments = 8

func exactly(x int) func(n, root int) int { return func(int, int) int { return x } }

// many is a claim for three and more ranks; with two, algorithms that pipeline send the block in one message.
func many(two int, more func(n, root int) int) func(n, root int) int {
	return func(n, root int) int {
		if n == 2 {
			return two
		}
		return more(n, root)
	}
}

func unlessPowerOfTwo(others, powers func(n, root int) int) func(n, root int) int {
	return func(n, root int) int {
		if n == 1<<down(n) {
			return powers(n, root)
		}
		return others(n, root)
	}
}

func doubleTreeRounds(n, _ int) int { return 2 * (up(n) + segments) }

// TestLoops checks that programs which go through all ranks one by one are loops: they are as long for any number of ranks.
func TestLoops(t *testing.T) {
	for _, c := range []struct {
		coll dtype.Collective
		name string
	}{
		{dtype.AllGather, "ring"}, {dtype.AllGather, "direct"}, {dtype.AllGather, "pairwise"},
		{dtype.ReduceScatter, "ring"}, {dtype.ReduceScatter, "pairwise"}, {dtype.Broadcast, "flat"},
	} {
		a, err := algo.Find(c.coll, c.name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Make(plan.Spec{Coll: c.coll, Ranks: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, rank := range []int{0, 1, 999} {
			steps := 0
			prog := p.Program(rank)
			for _, lane := range prog.Lanes {
				steps += len(lane)
			}
			if steps > 6 {
				t.Errorf("%v/%s: rank %d of 1000 has %d steps", c.coll, c.name, rank, steps)
			}
		}
	}
}

// TestCounts checks that a plan asks for the lengths of other ranks' blocks just where it uses them.
func TestCounts(t *testing.T) {
	for _, coll := range []dtype.Collective{dtype.Scatter, dtype.Gather} {
		for n := 1; n <= 17; n++ {
			p, _ := sound(t, coll, "binomial", n, 0)
			uses := false
			for rank := range n {
				for _, e := range p.Program(rank).Tmp {
					uses = uses || !p.Spec.Knows(rank, e)
				}
			}
			if declared := p.Needs&plan.Counts != 0; declared != uses {
				t.Errorf("%v on %d ranks: declares counts %v, uses them %v", coll, n, declared, uses)
			}
		}
	}
}
