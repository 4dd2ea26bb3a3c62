package probe

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEndedAndStopped(t *testing.T) {
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

// TestProcess looks at this process, at a child, at the child when it has ended, before and after
// it is waited for, and at another process with a number of ours.
func TestProcess(t *testing.T) {
	self, began := Process()
	require.NotEmpty(t, self.Machine)
	require.False(t, Gone(self, self))
	require.Less(t, began, time.Now())
	require.Less(t, time.Since(began), time.Hour)

	child := exec.Command("sleep", "100")
	require.NoError(t, child.Start())
	p := self
	p.Pid = child.Process.Pid
	s, _ := ReadStat(p.Pid)
	p.Start = s.Start
	require.False(t, Gone(self, p))
	other := p
	other.Start--
	require.True(t, Gone(self, other), "it has the number of a process that has ended")
	other.Machine = "another one"
	require.False(t, Gone(self, other), "nothing is known of processes elsewhere")
	require.NoError(t, child.Process.Kill())
	require.Eventually(t, func() bool { return Gone(self, p) }, 5*time.Second, time.Millisecond, "a zombie")
	_ = child.Wait()
	require.True(t, Gone(self, p))
}

// TestForeignProc looks at processes from a PID namespace of its own under the /proc of this one,
// where the same numbers are other processes.
func TestForeignProc(t *testing.T) {
	if os.Getenv("GOCCL_TEST_FOREIGN_PROC") != "" {
		here, err := os.Readlink("/proc/self")
		require.NoError(t, err)
		require.NotEqual(t, here, strconv.Itoa(os.Getpid()), "the test has a namespace of its own")
		self, _ := Process()
		require.NotEmpty(t, self.Machine)
		require.False(t, Gone(self, self))
		require.False(t, IsStopped(self.Pid))
		ended := self
		ended.Pid = 1 << 21 // nobody here
		require.True(t, Gone(self, ended))
		return
	}
	again := exec.Command("/proc/self/exe", "-test.run=^TestForeignProc$", "-test.v")
	again.Env = append(os.Environ(), "GOCCL_TEST_FOREIGN_PROC=1")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	out, err := again.CombinedOutput()
	if unstarted := (*fs.PathError)(nil); errors.As(err, &unstarted) {
		t.Skipf("this machine lets no test have a PID namespace of its own: %v", err)
	}
	require.NoError(t, err, "%s", out)
}
