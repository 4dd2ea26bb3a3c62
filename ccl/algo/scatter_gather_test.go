package algo_test

import (
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
)

func TestScatter(t *testing.T) {
	testClaims(t, dtype.Scatter, []claim{
		{name: "linear", rounds: others, sent: others, tmp: none},
		{name: "binomial", rounds: depth, sent: others, tmp: passedOn},
	})
}

func TestGather(t *testing.T) {
	testClaims(t, dtype.Gather, []claim{
		{name: "linear", rounds: others, sent: exactly(1), tmp: none},
		{name: "binomial", rounds: depth, sent: func(n, _ int) int { return max(passedOn(n, 0), 1) }, tmp: passedOn},
	})
}

// passedOn returns the number of blocks of the largest subtree below the root of a binomial tree, 0
// if it is a leaf.
func passedOn(n, _ int) int {
	p := 1 << (up(n) - 1)
	if most := max(p/2, n-p); most > 1 {
		return most
	}
	return 0
}

func TestBarrier(t *testing.T) {
	testClaims(t, dtype.Barrier, []claim{
		{name: "dissemination", rounds: depth, sent: none, tmp: none},
		{name: "tree", rounds: func(n, _ int) int { return 2 * up(n) }, sent: none, tmp: none},
	})
}
