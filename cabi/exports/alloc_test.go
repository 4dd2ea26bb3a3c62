//go:build cgo && !race

package exports_test

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/goccl/goccl/cabi/exports"
	"github.com/goccl/goccl/cabi/exports/fromc"
)

// A call through the C ABI allocates nothing, for every order of calls and size, on every thread.
func TestNoAllocations(t *testing.T) {
	const most, turns = 512 << 10, 200
	var ranks [2]*fromc.Rank
	for i := range ranks {
		r, err := fromc.Open(i, most, "GOCCL_RECORDER=4096")
		require.NoError(t, err)
		ranks[i] = r
	}
	both(t, ranks, func(r *fromc.Rank) error { return r.Join(ranks[1-r.Number()]) })
	defer both(t, ranks, (*fromc.Rank).Close)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty the pools
	for order := range fromc.Order(fromc.Orders) {
		for _, bytes := range []int{8, 16 << 10, most} {
			for _, own := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/own thread %t", order, bytes, own), func(t *testing.T) {
					mallocs := func(turns int) int {
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						both(t, ranks, func(r *fromc.Rank) error { return r.Do(order, bytes, turns, own) })
						runtime.ReadMemStats(&after)
						return int(after.Mallocs - before.Mallocs)
					}
					mallocs(turns) // fill the pools and the recorded calls
					// Threads and the runtime also allocate now and then, the more the
					// busier the machine is; a call that allocates does so in every turn.
					least := math.MaxInt
					for tries := 0; tries < 4 && least >= turns/3; tries++ {
						few := mallocs(turns / 10)
						least = min(least, mallocs(turns+turns/10)-few)
					}
					require.Less(t, least, turns/3, "in %d turns of two ranks", turns)
				})
			}
		}
	}
}
