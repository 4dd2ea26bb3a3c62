package pgbackend

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

func TestLent(t *testing.T) {
	before, _, blocks := Lent()
	var all []unsafe.Pointer
	for _, bytes := range []int{100, 5000} {
		memory, err := Alloc("", bytes)
		require.NoError(t, err)
		all = append(all, memory)
	}
	now, peak, count := Lent()
	require.Equal(t, before+5100, now)
	require.Equal(t, blocks+2, count)
	require.GreaterOrEqual(t, peak, now)
	for _, memory := range all {
		require.NoError(t, Free(memory))
	}
	require.ErrorIs(t, Free(all[0]), fault.Invalid)
	after, same, count := Lent()
	require.Equal(t, before, after)
	require.Equal(t, blocks, count)
	require.Equal(t, peak, same)
}
