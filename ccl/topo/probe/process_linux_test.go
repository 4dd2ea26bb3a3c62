package probe

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcess(t *testing.T) {
	require.False(t, HasEnded(os.Getpid()))
	require.False(t, IsStopped(os.Getpid()))
	child := exec.Command("sleep", "60")
	require.NoError(t, child.Start())
	pid := child.Process.Pid
	require.False(t, HasEnded(pid))
	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return IsStopped(pid) }, 10*time.Second, time.Millisecond)
	require.False(t, HasEnded(pid))
	require.NoError(t, child.Process.Kill())
	// Nobody has waited for it yet.
	require.Eventually(t, func() bool { return HasEnded(pid) }, 10*time.Second, time.Millisecond)
	require.Error(t, child.Wait())
	require.True(t, HasEnded(pid))
	require.False(t, IsStopped(pid))
}
