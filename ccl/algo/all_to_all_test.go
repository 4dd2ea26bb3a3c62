package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// TestAllToAll verifies every algorithm for 1 to 33 ranks. Each block has a length of its own in a
// proof, so this covers all_to_all_v too.
func TestAllToAll(t *testing.T) {
	for _, a := range algo.For(dtype.AllToAll) {
		for n := 1; n <= 33; n++ {
			mustVerify(t, a, plan.Spec{Coll: dtype.AllToAll, Ranks: n})
		}
	}
}

// TestAllToAllShapes verifies the algorithms that use a grid, on every grid.
func TestAllToAllShapes(t *testing.T) {
	for _, name := range []string{"hierarchical", "2d"} {
		a, err := algo.Find(dtype.AllToAll, name)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 24; n++ {
			for levels := 1; levels <= plan.MaxLevels; levels++ {
				for _, shape := range algo.Shapes(n, levels) {
					mustVerify(t, a, plan.Spec{Coll: dtype.AllToAll, Ranks: n, Shape: shape})
				}
			}
			mustVerify(t, a, plan.Spec{Coll: dtype.AllToAll, Ranks: n, Shape: plan.Shape{1, n}})
		}
	}
}

// TestAllToAllMessages checks the numbers of messages and blocks that the comments state, on a grid
// of 4 columns and 3 rows.
func TestAllToAllMessages(t *testing.T) {
	const a, b, n = 4, 3, 12
	bits := 0 // of all distances
	for j := range n {
		for x := j; x > 0; x >>= 1 {
			bits += x & 1
		}
	}
	for name, want := range map[string][2]int{
		"linear":       {n - 1, n - 1},
		"pairwise":     {n - 1, n - 1},
		"bruck":        {4, bits},
		"hierarchical": {(a-1)*b + b - 1, (a-1)*b + a*(b-1)},
		"2d":           {a + b - 2, (a-1)*b + a*(b-1)},
	} {
		algorithm, err := algo.Find(dtype.AllToAll, name)
		if err != nil {
			t.Fatal(err)
		}
		report := mustVerify(t, algorithm, plan.Spec{Coll: dtype.AllToAll, Ranks: n, Shape: plan.Shape{a, b}})
		for rank, load := range report.Ranks {
			if got := [2]int{load.Messages, load.Sent}; got != want {
				t.Errorf("%s: rank %d sends %d messages with %d blocks, want %v", name, rank, got[0], got[1], want)
			}
		}
		p, err := algorithm.Make(plan.Spec{Coll: dtype.AllToAll, Ranks: n})
		if err != nil {
			t.Fatal(err)
		}
		if foreign(p) != (p.Needs&plan.Counts != 0) {
			t.Errorf("%s: needs %b, but has lengths of others' blocks: %v", name, p.Needs, foreign(p))
		}
	}
}

// foreign reports whether some rank has Tmp as long as a block between two other ranks.
func foreign(p *plan.Plan) bool {
	for rank := range p.Spec.Ranks {
		prog := p.Program(rank)
		for _, e := range prog.Tmp {
			if !p.Spec.Knows(rank, e) {
				return true
			}
		}
	}
	return false
}
