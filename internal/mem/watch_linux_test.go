package mem_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/mem"
)

// watcher is a device that knows what it has access to.
type watcher struct {
	pinned map[unsafe.Pointer]int
	refuse string
}

func (w *watcher) Pin(memory []byte) error {
	if w.refuse == "pin" {
		return errors.New("pin refused")
	}
	w.pinned[pointer(memory)] = len(memory)
	return nil
}

func (w *watcher) Unpin(memory []byte) error {
	if w.refuse == "unpin" {
		return errors.New("unpin refused")
	}
	delete(w.pinned, pointer(memory))
	return nil
}

func TestWatch(t *testing.T) {
	a, err := mem.NewArena(64 << 20)
	require.NoError(t, err)
	before, err := a.Alloc(5000)
	require.NoError(t, err)

	// It learns of what there is, and of what comes and goes.
	w := &watcher{pinned: map[unsafe.Pointer]int{}}
	a.Watch(w)
	after, err := a.Alloc(3 << 20)
	require.NoError(t, err)
	require.Equal(t, map[unsafe.Pointer]int{pointer(before): 8192, pointer(after): 3 << 20}, w.pinned)
	require.NoError(t, a.Free(pointer(before)))
	require.Equal(t, map[unsafe.Pointer]int{pointer(after): 3 << 20}, w.pinned)
	for range 1000 {
		memory, err := a.Alloc(100_000)
		require.NoError(t, err)
		require.Len(t, w.pinned, 2)
		require.NoError(t, a.Free(pointer(memory)))
	}
	require.Len(t, w.pinned, 1)

	// What it refuses is memory all the same.
	w.refuse = "pin"
	refused, err := a.Alloc(4096)
	require.NoError(t, err)
	require.Len(t, w.pinned, 1)
	require.NoError(t, a.Free(pointer(refused)))

	// What it does not let go gets no other use; the next Free asks again.
	w.refuse = "unpin"
	used := a.InUse()
	require.ErrorContains(t, a.Free(pointer(after)), "unpin refused")
	require.Equal(t, used, a.InUse())
	require.Len(t, w.pinned, 1)
	w.refuse = ""
	require.NoError(t, a.Free(pointer(after)))
	require.Empty(t, w.pinned)
	require.Zero(t, a.InUse())

	// Its end is not the end of the memory.
	last, err := a.Alloc(4096)
	require.NoError(t, err)
	a.Unwatch(w)
	w.refuse = "unpin"
	require.NoError(t, a.Free(pointer(last)))
	require.NoError(t, a.Close())
}
