package cudatest_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/internal/mem"
)

// TestDMABuf finds what a descriptor stands for, until its memory is freed. One that is left open
// is a leak.
func TestDMABuf(t *testing.T) {
	d := cudatest.New(cudatest.Options{Delay: -1})
	defer d.Close()
	c, err := d.Retain(0)
	require.NoError(t, err)
	require.NoError(t, c.Enter(false))
	m, err := c.Alloc(1)
	require.NoError(t, err)
	descriptor, err := c.DMABuf(m.Ptr(), m.Bytes())
	require.NoError(t, err)
	memory, there, err := d.MemoryOfDMABuf(descriptor)
	require.NoError(t, err)
	require.Len(t, memory, m.Bytes())
	byAddress, _, err := d.MemoryAt(uint64(m.Ptr()), m.Bytes())
	require.NoError(t, err)
	require.Same(t, &byAddress[0], &memory[0])
	require.True(t, there())
	other, err := syscall.Dup(descriptor)
	require.NoError(t, err)
	require.NoError(t, m.Free())
	require.False(t, there())
	c.Leave()
	require.NoError(t, c.Release())

	require.NoError(t, syscall.Close(descriptor))
	require.Len(t, d.Leaks(), 1, "a copy of the descriptor is open")
	require.Contains(t, d.Leaks()[0], "a descriptor of a dma-buf of allocation 1")
	require.NoError(t, syscall.Close(other))
	require.Empty(t, d.Leaks())
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	_, _, err = d.MemoryOfDMABuf(int(null.Fd()))
	require.ErrorIs(t, err, fault.Invalid)
	d.Check(t)
}

// TestExposedAgain: memory of others has pages, also where it begins within one, and another ID
// each time.
func TestExposedAgain(t *testing.T) {
	d := cudatest.New(cudatest.Options{Delay: -1})
	defer d.Close()
	c, err := d.Retain(0)
	require.NoError(t, err)
	require.NoError(t, c.Enter(false))
	page := os.Getpagesize()
	block, err := mem.Alloc(3 * page)
	require.NoError(t, err)
	defer block.Free()
	var last cuda.Range
	for range 2 {
		p := d.Expose(block.Bytes()[512 : 2*page])
		r, err := c.Range(p + 100)
		require.NoError(t, err)
		require.Equal(t, cuda.Range{Ptr: p, Bytes: 2*page - 512, ID: r.ID}, r)
		require.NotEqual(t, last.ID, r.ID)
		last = r
		descriptor, err := c.DMABuf(p-512, 2*page)
		require.NoError(t, err)
		require.NoError(t, syscall.Close(descriptor))
		_, err = c.DMABuf(p-512, 3*page)
		require.ErrorIs(t, err, fault.Invalid)
		d.Hide(p)
	}
	c.Leave()
	require.NoError(t, c.Release())
	d.Check(t)
	require.Empty(t, d.Leaks())
}
