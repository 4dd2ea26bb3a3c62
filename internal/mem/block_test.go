package mem_test

import (
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/stretchr/testify/require"
)

func TestBlock(t *testing.T) {
	before := mem.InUse()
	for _, n := range []int{1, 63, 64, 4096, 100001, 16 << 20} {
		b, err := mem.Alloc(n)
		require.NoError(t, err)
		data := b.Bytes()
		require.Len(t, data, n)
		require.Zero(t, uintptr(unsafe.Pointer(&data[0]))%mem.Align)
		require.Equal(t, before+int64(n), mem.InUse())
		for i := 0; i < n; i += 4096 {
			require.Zero(t, data[i])
			data[i] = 1
		}
		data[n-1] = 1
		require.NoError(t, b.Free())
		require.NoError(t, b.Free())
		require.Nil(t, b.Bytes())
		require.Equal(t, before, mem.InUse())
	}
	for _, n := range []int{0, -1} {
		_, err := mem.Alloc(n)
		require.ErrorIs(t, err, fault.Invalid)
	}
}
