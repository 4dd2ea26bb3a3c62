package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

func TestBroadcast(t *testing.T) {
	testClaims(t, dtype.Broadcast, []claim{
		{name: "flat", rounds: others, sent: others, tmp: none},
		{name: "binomial", rounds: depth, sent: depth, tmp: none},
		{name: "chain", rounds: many(1, func(n, _ int) int { return n - 2 + segments }),
			sent: many(1, exactly(segments)), tmp: none},
		{name: "double_binary_tree", rounds: doubleTreeRounds, atMost: true,
			sent: many(1, exactly(2*segments)), tmp: none},
		{name: "scatter_allgather", rounds: func(n, _ int) int { return up(n) + n - 1 },
			sent: func(n, _ int) int { return 2 * (n - 1) }, tmp: none},
	})
}
