//go:build !race

package group_test

import (
	"testing"

	"github.com/goccl/goccl/cuda/cudatest"
)

// The same holds for calls between hosts. They have one piece here: in several pieces, messages
// come behind those of the piece before, which implies other orderings (TestRailsOrder has such
// calls). What the host does for messages is what it does for those of callers.
func TestRailsEachOrderingCounts(t *testing.T) {
	calls := fewer(5)
	calls.count, calls.tries = 20_000, 10
	eachCounts(t, []bool{false}, calls, func(t *testing.T, lame, device cudatest.Options) []*rank {
		return networkWith(t, networkOf(2, 2), []cudatest.Options{lame, device}, with(overWindows, "ring"), 4*lameApart)
	})
}
