package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

func TestAllGather(t *testing.T) {
	testClaims(t, dtype.AllGather, []claim{
		{name: "direct", rounds: others, sent: others, tmp: none},
		{name: "ring", rounds: others, sent: others, tmp: none},
		{name: "pairwise", rounds: others, sent: others, tmp: none},
		{name: "recursive_doubling", rounds: folded(2), tmp: none, sent: func(n, _ int) int {
			p, sent := 1<<down(n), n-1
			if p < n { // rank 1, which acts for two
				sent = n
				for d := 1; d < p; d *= 2 {
					sent += d + min(d, n-p)
				}
			}
			return sent
		}},
		{name: "bruck", rounds: depth, sent: others, tmp: allRanks},
		{name: "pat", rounds: depth, sent: others, tmp: allRanks},
	})
}
