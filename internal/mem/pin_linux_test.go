package mem_test

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/mem"
)

// device notes what it has access to.
type device struct {
	name   string
	log    *[]string
	failOn string
}

func (d device) Pin(memory []byte) error   { return d.note("pin", memory) }
func (d device) Unpin(memory []byte) error { return d.note("unpin", memory) }

func (d device) note(what string, memory []byte) error {
	*d.log = append(*d.log, fmt.Sprintf("%s %s %d", d.name, what, len(memory)))
	if d.failOn == what {
		return errors.New(what + " refused")
	}
	return nil
}

func TestPin(t *testing.T) {
	a, err := mem.NewArena(4 << 20)
	require.NoError(t, err)
	var log []string
	gpu, nic := device{"gpu", &log, ""}, device{"nic", &log, ""}

	memory, err := a.Alloc(5000, gpu, nic)
	require.NoError(t, err)
	require.Equal(t, []string{"gpu pin 8192", "nic pin 8192"}, log)
	require.Len(t, memory, 5000)
	log = nil
	plain, err := a.Alloc(5000)
	require.NoError(t, err)
	require.NoError(t, a.Free(unsafe.Pointer(&plain[0])))
	require.Empty(t, log)
	require.NoError(t, a.Free(unsafe.Pointer(&memory[0])))
	require.Equal(t, []string{"nic unpin 8192", "gpu unpin 8192"}, log)

	// A device that refuses leaves nothing behind.
	log = nil
	_, err = a.Alloc(100, gpu, device{"full", &log, "pin"}, nic)
	require.ErrorContains(t, err, "pin refused")
	require.Equal(t, []string{"gpu pin 4096", "full pin 4096", "gpu unpin 4096"}, log)
	require.Zero(t, a.InUse())

	// What a device does not let go gets no other use.
	memory, err = a.Alloc(100, device{"stuck", &log, "unpin"})
	require.NoError(t, err)
	require.ErrorContains(t, a.Free(unsafe.Pointer(&memory[0])), "unpin refused")
	require.Equal(t, 4096, a.InUse())
	require.NoError(t, a.Free(unsafe.Pointer(&memory[0])), "it has been asked once")
	require.NoError(t, a.Close())
}
