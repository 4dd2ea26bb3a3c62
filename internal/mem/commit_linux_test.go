package mem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Processes that all look before any of them takes its part never take more than there is.
func TestSharesOfManyProcesses(t *testing.T) {
	for _, memory := range []int64{20 << 20, 64 << 20, 100<<20 + 4096, 1 << 30, 19 << 30} {
		left, parts := memory, 0
		for left > headroom {
			part := share(left - headroom)
			require.Zero(t, part%(64<<10), "pages of any size that Linux has")
			left -= shares * part
			parts++
		}
		require.GreaterOrEqual(t, left, int64(0), "memory %d", memory)
		require.Less(t, parts, 1000, "memory %d", memory)
	}
}
