package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

func TestReduce(t *testing.T) {
	testClaims(t, dtype.Reduce, []claim{
		{name: "flat", rounds: others, sent: exactly(1), tmp: func(_, root int) int { return min(root/2, 1) }},
		{name: "binomial", rounds: depth, sent: exactly(1), tmp: func(n, _ int) int { return min(n/4, 1) }},
		{name: "chain", sent: many(1, exactly(segments)), tmp: many(0, exactly(segments)),
			rounds: many(1, func(n, root int) int {
				if root == n-1 {
					return n - 2 + segments
				}
				return n - 1 + segments
			})},
		{name: "double_binary_tree", rounds: doubleTreeRounds, atMost: true, sent: many(1, exactly(2*segments)),
			tmp: many(0, exactly(segments))},
		{name: "reduce_scatter_gather", rounds: func(n, _ int) int { return folded(0)(n, 0) + folded(1)(n, 0) },
			sent: func(n, _ int) int { return 1<<down(n) - 1 + 1<<down(n)/2 },
			tmp: func(n, root int) int {
				p := 1 << down(n)
				if pairs := n - p; pairs > 1 || pairs == 1 && root > 1 {
					return p // a rank other than the root acts for two
				}
				return p / 2
			}},
	})
}
