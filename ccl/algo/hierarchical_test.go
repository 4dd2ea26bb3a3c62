package algo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// mustVerify makes a plan, verifies it and returns the report.
func mustVerify(t *testing.T, a algo.Algorithm, s plan.Spec) *verify.Report {
	t.Helper()
	p, err := a.Make(s)
	if err != nil {
		t.Fatalf("%s, %v: %v", a.Name, s, err)
	}
	report, err := verify.Plan(p, verify.Options{})
	if err != nil {
		t.Fatalf("%s, %v: %v", a.Name, s, err)
	}
	if s.Ranks > 2 && s.Coll.Reduces() && int(report.Determinism) < a.Level {
		t.Errorf("%s, %v: %v, declared is %d", a.Name, s, report.Determinism, a.Level)
	}
	return report
}

var composed = []dtype.Collective{dtype.AllReduce, dtype.ReduceScatter, dtype.AllGather}

// TestHierarchicalShapes verifies every factorisation of up to 24 ranks, each with some of the
// variants in turn.
func TestHierarchicalShapes(t *testing.T) {
	for _, coll := range composed {
		for _, levels := range []int{2, 3} {
			variants := algo.Variants(coll, levels)
			if len(variants) < 8 {
				t.Fatalf("%v has only %d hierarchical algorithms with %d levels", coll, len(variants), levels)
			}
			next := 0
			for n := 1; n <= 24; n++ {
				for _, shape := range algo.Shapes(n, levels) {
					for range 3 {
						mustVerify(t, variants[next%len(variants)], plan.Spec{Coll: coll, Ranks: n, Shape: shape})
						next += 7
					}
				}
			}
		}
	}
}

// TestHierarchicalPairs verifies every pair once more, on levels of different sizes.
func TestHierarchicalPairs(t *testing.T) {
	for _, coll := range composed {
		for _, a := range algo.Variants(coll, 2) {
			for _, shape := range []plan.Shape{{2, 3}, {3, 2}, {4, 2}} {
				mustVerify(t, a, plan.Spec{Coll: coll, Ranks: shape[0] * shape[1], Shape: shape})
			}
			found, err := algo.Find(coll, a.Name)
			if err != nil || found.Name != a.Name || found.Level != a.Level {
				t.Errorf("Find(%v, %s): %v, %v", coll, a.Name, found, err)
			}
		}
	}
}

// TestHierarchicalWithoutShape leaves the shape to the algorithm, or gives one with levels of a
// single rank.
func TestHierarchicalWithoutShape(t *testing.T) {
	for _, coll := range composed {
		for _, name := range []string{"hierarchical", "hierarchical.ring.direct", "hierarchical.direct.ring.direct"} {
			a, err := algo.Find(coll, name)
			if err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= 18; n++ {
				mustVerify(t, a, plan.Spec{Coll: coll, Ranks: n})
				mustVerify(t, a, plan.Spec{Coll: coll, Ranks: n, Shape: plan.Shape{n, 1}})
				mustVerify(t, a, plan.Spec{Coll: coll, Ranks: n, Shape: plan.Shape{1, n, 1}})
			}
		}
	}
}

// TestHierarchicalBytes checks the amounts that the comments state, and that ranks send only to
// ranks of their host and their rail.
func TestHierarchicalBytes(t *testing.T) {
	const a, b = 4, 3
	for _, test := range []struct {
		coll                 dtype.Collective
		name                 string
		within, across, unit int // chunks, of which a block has unit
	}{
		{dtype.AllReduce, "hierarchical.ring.ring", 2 * (a - 1) * b, 2 * (b - 1), a * b},
		{dtype.ReduceScatter, "hierarchical.ring.ring", b * (a - 1), b - 1, 1},
		{dtype.AllGather, "hierarchical.ring.direct", b * (a - 1), b - 1, 1},
	} {
		algorithm, err := algo.Find(test.coll, test.name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := algorithm.Make(plan.Spec{Coll: test.coll, Ranks: a * b, Shape: plan.Shape{a, b}})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range a * b {
			within, across := 0, 0
			prog := p.Program(rank)
			for _, lane := range prog.Lanes {
				for _, s := range lane {
					switch {
					case s.Kind != plan.Send:
					case s.Peer/a == rank/a:
						within += s.Src[0].N
					case s.Peer%a == rank%a:
						across += s.Src[0].N
					default:
						t.Errorf("%v: rank %d sends to %d", p.Spec, rank, s.Peer)
					}
				}
			}
			if p.Split != test.unit || within != test.within || across != test.across {
				t.Errorf("%v: rank %d sends %d chunks within and %d across, of %d a block; want %d, %d, %d",
					p.Spec, rank, within, across, p.Split, test.within, test.across, test.unit)
			}
		}
	}
}

func TestFindHierarchical(t *testing.T) {
	for _, test := range []struct {
		coll dtype.Collective
		name string
		want string
	}{
		{dtype.AllReduce, "hierarchical.ring", "names with dots are hierarchical.INNER.OUTER"},
		{dtype.AllReduce, "tree.ring.ring", "names with dots are hierarchical.INNER.OUTER"},
		{dtype.AllReduce, "hierarchical.ring.ring.ring.ring", "names with dots are"},
		{dtype.AllReduce, "hierarchical.naive.ring", `level 0 cannot be "naive"; known there: direct, ring`},
		{dtype.AllReduce, "hierarchical.ring.hierarchical", `level 1 cannot be "hierarchical"`},
		{dtype.AllReduce, "hierarchical.ring.one_shot", `level 1 cannot be "one_shot"`},
		{dtype.Barrier, "hierarchical.ring.ring", "it has no algorithms made of others"},
	} {
		_, err := algo.Find(test.coll, test.name)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %s: got %v, want %q", test.coll, test.name, err, test.want)
		}
	}
	a, err := algo.Find(dtype.AllReduce, "hierarchical.ring.ring")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Make(plan.Spec{
		Coll: dtype.AllReduce, Ranks: 6, Shape: plan.Shape{4, 2},
	}); !errors.Is(err, fault.Invalid) {
		t.Errorf("a shape of 8 ranks for 6: got %v", err)
	}
	for _, n := range []int{1, 4} {
		if algo.Variants(dtype.AllReduce, n) != nil || algo.Variants(dtype.Barrier, 2) != nil {
			t.Error("there are variants that cannot be")
		}
	}
}

func TestShapes(t *testing.T) {
	for _, test := range []struct {
		n, levels int
		want      []plan.Shape
	}{
		{12, 2, []plan.Shape{{2, 6}, {3, 4}, {4, 3}, {6, 2}}},
		{12, 3, []plan.Shape{{2, 2, 3}, {2, 3, 2}, {3, 2, 2}}},
		{5, 1, []plan.Shape{{5}}},
		{7, 2, nil},
		{1, 1, nil},
		{8, 4, nil},
	} {
		if got := algo.Shapes(test.n, test.levels); !slices.Equal(got, test.want) {
			t.Errorf("Shapes(%d, %d) = %v, want %v", test.n, test.levels, got, test.want)
		}
	}
}
