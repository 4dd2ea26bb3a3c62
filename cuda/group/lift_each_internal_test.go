//go:build !race

package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// What a rank enqueues for each plan that reads windows, turned back into steps, is proven like any
// other plan, and so are four operations in a row that use the slots in turn. The same holds for
// what becomes part of a graph, in groups with arenas, and for the tables of short calls. No thread
// has a part in it, so the race detector is left out.
func TestEnqueuedIsProven(t *testing.T) {
	plans, tables := 0, map[string]int{}
	sizes := []int{2, 3, 5, 8, 9, 17}
	if testing.Short() {
		sizes = sizes[:4]
	}
	for _, a := range algo.All() {
		for _, ranks := range sizes {
			for _, root := range verify.Roots(a.Coll, min(ranks, 3)) {
				p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks, Root: root})
				if err != nil || p.Needs&plan.Gets == 0 || p.Needs&plan.Puts == 0 {
					continue
				}
				plans++
				t.Run(fmt.Sprint(a.Coll, "=", a.Name, " ", ranks, " ranks, root ", root), func(t *testing.T) {
					for way, take := range ways(p) {
						op := enqueued(t, p, take)
						_, err := verify.Plan(op.Plan, verify.Options{})
						require.NoError(t, err, way)
						four := []verify.Operation{op, op, op, op}
						require.NoError(t, verify.Sequence(four, verify.Options{}), way)
						tables[way]++
						if way == "lends" {
							provenUndrained(t, op)
						}
					}
				})
			}
		}
	}
	require.Greater(t, plans, 40)
	require.Greater(t, tables["table"], 20)
	require.Equal(t, 2*4, tables["packets"], "two plans of 2, 3, 5 and 8 ranks")
}
