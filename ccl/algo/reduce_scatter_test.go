package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

func TestReduceScatter(t *testing.T) {
	testClaims(t, dtype.ReduceScatter, []claim{
		{name: "direct", rounds: func(n, _ int) int { return 2*n - 3 }, sent: others,
			tmp: func(n, _ int) int { return min(n-2, 1) }},
		{name: "ring", rounds: others, sent: others, tmp: func(n, _ int) int { return n - 2 }},
		{name: "pairwise", rounds: others, sent: others, tmp: none},
		{name: "recursive_halving", rounds: folded(2), sent: unlessPowerOfTwo(allRanks, others),
			tmp: unlessPowerOfTwo(allRanks, func(n, _ int) int { return n / 4 * 2 })},
		{name: "bruck", rounds: depth, sent: others, tmp: allRanks},
		{name: "pat", rounds: depth, sent: others, tmp: allRanks},
	})
}
