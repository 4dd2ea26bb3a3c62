package share

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cuda"
)

// Slots grow with the memory of the device, unless the user has said how large they are.
func TestSlotsGrow(t *testing.T) {
	const staging, gib = 16 << 20, 1 << 30
	for bytes, want := range map[int64]int{1 * gib: 8 << 20, 16 * gib: 16 << 20, 24*gib + 5: 24 << 20,
		192 * gib: 32 << 20} {
		require.Equal(t, want, SlotOn(cuda.Info{Bytes: bytes}, staging, true))
		require.Equal(t, 8<<20, SlotOn(cuda.Info{Bytes: bytes}, staging, false))
	}
}
