//go:build cgo && !race

package exports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cabi/exports/fromc"
	_ "github.com/goccl/goccl/internal/scratch"
)

// BenchmarkCalls runs two ranks of one process, called by C code, in every order of calls. It is
// the source of the compiler's profile of libgoccl (make profile).
func BenchmarkCalls(b *testing.B) {
	const bytes = 8
	var ranks [2]*fromc.Rank
	for i := range ranks {
		r, err := fromc.Open(i, bytes, "GOCCL_RECORDER=4096")
		require.NoError(b, err)
		ranks[i] = r
	}
	both(b, ranks, func(r *fromc.Rank) error { return r.Join(ranks[1-r.Number()]) })
	defer both(b, ranks, (*fromc.Rank).Close)
	for order := range fromc.Order(fromc.Orders) {
		b.Run(order.String(), func(b *testing.B) {
			both(b, ranks, func(r *fromc.Rank) error { return r.Do(order, bytes, b.N, false) })
		})
	}
}
