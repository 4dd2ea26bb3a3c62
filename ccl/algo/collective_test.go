package algo_test

import (
	"math/bits"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// claim is the cost that the comment of an algorithm states. Amounts are in chunks.
type claim struct {
	name   string
	rounds func(n, root int) int // messages of the longest chain
	atMost bool                  // rounds is a bound
	sent   func(n, root int) int // most chunks that a rank sends
	tmp    func(n, root int) int // most Tmp of a rank
}

// rankCounts returns the numbers of ranks that the tests of collectives go through.
func rankCounts() []int {
	var counts []int
	for n := 1; n <= 33; n++ {
		counts = append(counts, n)
	}
	return counts
}

// roots returns all roots of a small group, and the first, second and last rank of a larger group.
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

// sound makes a plan and verifies it.
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

// testClaims verifies the plans of some algorithms for all rank counts and roots, and compares them
// with the claims.
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

// folded returns the steps of an algorithm that takes log₂ n steps for powers of two, and ⌊log₂ n⌋
// + more steps for other rank counts.
func folded(more int) func(n, root int) int {
	return func(n, _ int) int {
		if n == 1<<down(n) {
			return down(n)
		}
		return down(n) + more
	}
}

// segments is the number of segments into which the pipelined algorithms cut the data of a path.
const segments = 8

func exactly(x int) func(n, root int) int { return func(int, int) int { return x } }

// many returns a claim for three and more ranks. With two ranks, pipelined algorithms send the
// block in one message.
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

// TestLoops checks that programs that go through all ranks one by one are loops: they have the same
// length for any number of ranks.
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

// TestCounts checks that a plan asks for the lengths of other ranks' blocks if and only if it uses
// them.
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
