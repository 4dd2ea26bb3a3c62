package verify_test

import (
	"math/bits"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// costs are the claims of the comments in package algo: rounds, and the maximum number of chunks
// that a rank sends, reduces and keeps in Tmp.
var costs = map[string]func(n, root int) (rounds, sent, reduced, tmp int){
	"broadcast/binomial": func(n, root int) (int, int, int, int) { return logarithm(n), logarithm(n), 0, 0 },
	"scatter/linear":     func(n, root int) (int, int, int, int) { return n - 1, n - 1, 0, 0 },
	"gather/linear":      func(n, root int) (int, int, int, int) { return n - 1, 1, 0, 0 },
	"all_gather/direct":  func(n, root int) (int, int, int, int) { return n - 1, n - 1, 0, 0 },
	"all_gather/ring":    func(n, root int) (int, int, int, int) { return n - 1, n - 1, 0, 0 },
	"reduce/binomial": func(n, root int) (int, int, int, int) {
		return logarithm(n), 1, logarithm(n), min(n/4, 1)
	},
	"reduce/direct":         func(n, root int) (int, int, int, int) { return n - 1, 1, n - 1, min(root/2, 1) },
	"reduce_scatter/direct": func(n, root int) (int, int, int, int) { return 2*n - 3, n - 1, n - 1, min(n-2, 1) },
	"reduce_scatter/ring":   func(n, root int) (int, int, int, int) { return n - 1, n - 1, n - 1, n - 2 },
	"all_reduce/direct":     func(n, root int) (int, int, int, int) { return max(2*n-3, 2), n - 1, n - 1, 1 },
	"all_reduce/ring":       func(n, root int) (int, int, int, int) { return 2 * (n - 1), 2 * (n - 1), n - 1, 0 },
	"all_to_all/direct":     func(n, root int) (int, int, int, int) { return n - 1, n - 1, 0, 0 },
	"all_to_all/pairwise":   func(n, root int) (int, int, int, int) { return n - 1, n - 1, 0, 0 },
	"barrier/dissemination": func(n, root int) (int, int, int, int) { return logarithm(n), 0, 0, 0 },
}

func logarithm(n int) int { return bits.Len(uint(n - 1)) }

func TestCosts(t *testing.T) {
	for _, a := range algo.All() {
		name := a.Coll.String() + "/" + a.Name
		cost := costs[name]
		if cost == nil {
			continue // package algo tests the claims of its doc comments
		}
		for _, n := range []int{2, 3, 4, 5, 8, 12, 17} {
			for _, s := range specs(a, n) {
				r := report(t, a, s)
				rounds, sent, reduced, tmp := cost(n, s.Root)
				var got verify.Load
				chunks, reductions := 0, 0
				for _, l := range r.Ranks {
					got.Sent, got.Reduced, got.Tmp =
						max(got.Sent, l.Sent), max(got.Reduced, l.Reduced), max(got.Tmp, l.Tmp)
					chunks += l.Sent - l.Received
					reductions += l.Reduced
				}
				if r.Rounds != rounds || got.Sent != sent || got.Reduced != reduced || got.Tmp != tmp {
					t.Errorf("%s, %v: %d rounds, most sent %d, reduced %d, tmp %d; want %d, %d, %d, %d", name, s,
						r.Rounds, got.Sent, got.Reduced, got.Tmp, rounds, sent, reduced, tmp)
				}
				if chunks != 0 {
					t.Errorf("%s, %v: what was sent and what was received differ by %d chunks", name, s, chunks)
				}
				if a.Coll == dtype.Reduce && reductions != n-1 {
					t.Errorf("%s, %v: %d reductions for %d contributions", name, s, reductions, n)
				}
			}
		}
	}
}

func TestDeterminism(t *testing.T) {
	// For three and more ranks; collectives that only move data are at the top level.
	want := map[string]verify.Level{
		"reduce/binomial": verify.AnySize, "reduce/direct": verify.RankOrder,
		"reduce_scatter/direct": verify.RankOrder, "reduce_scatter/ring": verify.EveryRun,
		"all_reduce/direct": verify.RankOrder, "all_reduce/ring": verify.EveryRun,
	}
	for _, a := range algo.All() {
		level, ok := want[a.Coll.String()+"/"+a.Name]
		if !ok && a.Coll.Reduces() {
			continue
		}
		if !ok {
			level = verify.RankOrder
		}
		for _, n := range []int{4, 7} {
			if got := report(t, a, plan.Spec{Coll: a.Coll, Ranks: n}).Determinism; got != level {
				t.Errorf("%v/%s, %d ranks: %v, want %v", a.Coll, a.Name, n, got, level)
			}
		}
		for _, n := range []int{1, 2} {
			if got := report(t, a, plan.Spec{Coll: a.Coll, Ranks: n}).Determinism; got != verify.RankOrder {
				t.Errorf("%v/%s, %d ranks: %v, want rank order", a.Coll, a.Name, n, got)
			}
		}
	}
}

// TestDifferentBits has a plan whose ranks add the operands of the same sum in different orders.
func TestDifferentBits(t *testing.T) {
	a, _ := algo.Find(dtype.AllReduce, "direct")
	p, _ := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 2})
	p = edit(p, 1, func(prog *plan.Program) {
		s := &prog.Lanes[1][1]
		s.Src[0], s.Src[1] = s.Src[1], s.Src[0]
	})
	r, err := verify.Plan(p, verify.Options{})
	if err != nil || r.Determinism != verify.PerRank {
		t.Errorf("got %v, %v; want a sound plan of %v", r.Determinism, err, verify.PerRank)
	}
}

func report(t *testing.T, a algo.Algorithm, s plan.Spec) *verify.Report {
	t.Helper()
	p, err := a.Make(s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Plan(p, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func BenchmarkRing64(b *testing.B) {
	a, _ := algo.Find(dtype.AllReduce, "ring")
	p, _ := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 64})
	for b.Loop() {
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
