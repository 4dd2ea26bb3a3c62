package shm

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// startSandboxed starts a process that Landlock lets connect to no abstract socket but its own.
func startSandboxed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	scope := struct{ files, network, scoped uint64 }{scoped: 1} // LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&scope)),
		unsafe.Sizeof(scope), 0)
	if errno != 0 {
		t.Skipf("Landlock has no scopes here: %v", errno)
	}
	defer unix.Close(int(rules))
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, and with it its limits, ends with this goroutine
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	require.NoError(t, <-started)
}

// TestLandlock has a process that may not connect to this one. This one may connect to it, unless
// it is in a sandbox, too: then both say that they are refused.
func TestLandlock(t *testing.T) {
	for _, both := range []bool{false, true} {
		for try := range 4 { // which of the two dials is chance
			t.Run(fmt.Sprintf("both %v/%d", both, try), func(t *testing.T) {
				t.Parallel()
				program, err := os.Executable()
				require.NoError(t, err)
				cmd := exec.Command(program, childArgument)
				in, err := cmd.StdinPipe()
				require.NoError(t, err)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				startSandboxed(t, cmd)
				t.Cleanup(func() {
					in.Close()
					cmd.Wait()
				})
				c := &doomed{cmd: cmd, in: in, out: bufio.NewReader(out)}
				c.address, err = hex.DecodeString(c.says(t))
				require.NoError(t, err)
				f := newFabric(t)
				if both {
					f.options.Deny = func([]byte) error { return unix.EPERM }
				}
				fmt.Fprintln(in, hex.EncodeToString(f.Address()))
				l, err := f.Connect(within(t), c.address, session(0, 3, 7, 1))
				if both {
					isRefused(t, err)
					require.Contains(t, c.says(t), "not supported (rank 3): shm: ")
					return
				}
				require.NoError(t, err)
				require.NoError(t, l.Close())
				l, err = f.Connect(within(t), c.address, session(1, 3, 7, 1))
				require.NoError(t, err)
				require.Equal(t, "ready", c.says(t))
				require.NoError(t, l.Close())
			})
		}
	}
}
