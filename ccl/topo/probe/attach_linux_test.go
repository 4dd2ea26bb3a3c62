package probe

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReadMemory checks that reads of a child and of this process agree. Whether they are permitted
// depends on the machine.
func TestReadMemory(t *testing.T) {
	child, self := readChild(), readSelf()
	t.Logf("child: %v, self: %v", child, self)
	if self != nil {
		require.ErrorIs(t, self, unix.EPERM, "a process reads itself unless a filter forbids the call")
		require.Error(t, child)
		return
	}
	if child != nil {
		require.True(t, child == errNoChild || child == unix.EPERM, "%v", child)
	}
}

func TestReadMemoryThatIsNotThere(t *testing.T) {
	if readSelf() != nil {
		t.Skip("process_vm_readv is not permitted here")
	}
	_, err := readMemory(unix.Getpid(), 8, 1)
	require.ErrorIs(t, err, unix.EFAULT)
}
