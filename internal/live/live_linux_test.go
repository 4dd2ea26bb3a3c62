package live

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// readSpan is how long readers have that do not read.
const readSpan = 300 * time.Millisecond

// served serves snapshots of this process, and returns how many sockets a forked child would close.
func served(t *testing.T, snapshot func() *Process) (open func() int) {
	t.Helper()
	var mu sync.Mutex
	fds := map[int]bool{}
	s, err := serve(snapshot, func(fd int, open bool) {
		mu.Lock()
		defer mu.Unlock()
		if fds[fd] == open {
			t.Errorf("socket %d: open %t twice", fd, open)
		}
		if fds[fd] = open; !open {
			delete(fds, fd)
		}
	}, readSpan)
	require.NoError(t, err)
	open = func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(fds)
	}
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.Eventually(t, func() bool { return open() == 0 }, 10*time.Second, time.Millisecond)
	})
	return open
}

func TestAsk(t *testing.T) {
	_, err := Ask(os.Getpid())
	require.ErrorIs(t, err, fault.NotSupported)
	want := &Process{Version: "1", Pid: os.Getpid(), Groups: []Group{{Name: "a", Size: 3, Waits: []int{1, 2},
		Pace: &Pace{Operations: 5, Bytes: 6}}}}
	open := served(t, func() *Process { return want })
	require.Equal(t, 1, open())
	pids, err := Processes()
	require.NoError(t, err)
	require.Contains(t, pids, os.Getpid())
	for range 3 {
		got, err := Ask(os.Getpid())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Eventually(t, func() bool { return open() == 1 }, 10*time.Second, time.Millisecond)
	_, err = Serve(func() *Process { return want }, nil)
	require.ErrorIs(t, err, fault.System, "the name is taken")
}

// Readers that do not read, and too many of them, hold nobody up for long and leave nothing behind.
func TestStuckReaders(t *testing.T) {
	large := &Process{Groups: make([]Group, 3*mostGroups)}
	for i := range large.Groups {
		large.Groups[i].Failure = strings.Repeat("x", 2<<10) // together more than a socket holds
	}
	groups := large.Groups
	open := served(t, func() *Process { return &Process{Groups: groups} })
	goroutines := runtime.NumGoroutine()
	var stuck []net.Conn
	for range 2 * mostAsking {
		c, err := net.Dial("unix", socketOf(os.Getpid(), namespace()).Name)
		require.NoError(t, err)
		stuck = append(stuck, c)
	}
	closed := make(chan bool)
	for _, c := range stuck[mostAsking:] { // they are too many
		go func() {
			io.Copy(io.Discard, c)
			closed <- true
		}()
	}
	for range mostAsking {
		<-closed
	}
	require.LessOrEqual(t, open(), 1+mostAsking)
	require.Eventually(t, func() bool { return open() == 1 }, 10*time.Second, time.Millisecond)
	var got *Process
	require.Eventually(t, func() (asked bool) { // a place is free soon after its socket is closed
		var err error
		got, err = Ask(os.Getpid())
		return err == nil
	}, 30*time.Second, time.Millisecond)
	require.Len(t, got.Groups, mostGroups)
	require.Equal(t, 2*mostGroups, got.More)
	for _, c := range stuck {
		c.Close()
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "goroutines stay")
	}
}

// A snapshot that panics is not answered, and the next one is.
func TestPanic(t *testing.T) {
	var once sync.Once
	open := served(t, func() *Process {
		once.Do(func() { panic("of a test") })
		return &Process{}
	})
	_, err := Ask(os.Getpid())
	require.ErrorIs(t, err, fault.System)
	_, err = Ask(os.Getpid())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return open() == 1 }, 10*time.Second, time.Millisecond)
}

func TestStrangers(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@goccl-test-" + fmt.Sprint(os.Getpid())})
	require.NoError(t, err)
	defer l.Close()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	defer c.Close()
	require.True(t, friend(c, os.Geteuid()))
	require.Equal(t, os.Geteuid() == 0, friend(c, os.Geteuid()+1))
	for _, user := range []int{0, os.Geteuid()} { // nobody, root neither, takes the answer of another process
		require.NoError(t, genuine(c, os.Getpid(), user))
		require.ErrorContains(t, genuine(c, os.Getppid(), user), fmt.Sprintf("is held by process %d", os.Getpid()))
	}
}

func TestListed(t *testing.T) {
	pids, err := listed(strings.NewReader(`Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 17 @goccl-top-30-5
0000000000000000: 00000003 00000000 00000000 0001 03 18 @goccl-top-30-5
0000000000000000: 00000002 00000000 00010000 0001 01 19 @goccl-top-7-5
0000000000000000: 00000002 00000000 00010000 0001 01 20 @goccl-top-8-6
0000000000000000: 00000002 00000000 00010000 0001 01 21 @goccl-top--9-5
0000000000000000: 00000002 00000000 00010000 0001 01 22 @goccl-top-x
0000000000000000: 00000002 00000000 00010000 0001 01 23
0000000000000000: 00000002 00000000 00010000 0001 01 24 /tmp/goccl-top-3-5
`), 5)
	require.NoError(t, err)
	require.Equal(t, []int{7, 30}, pids)
}

func TestFamily(t *testing.T) {
	child := exec.Command("sh", "-c", "sleep 1000 & echo; wait")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer child.Wait()
	defer syscall.Kill(-child.Process.Pid, syscall.SIGKILL)
	_, err = out.Read(make([]byte, 1)) // by then it has a child
	require.NoError(t, err)
	family, err := Family(child.Process.Pid)
	require.NoError(t, err)
	require.Len(t, family, 2)
	family, err = Family(os.Getpid())
	require.NoError(t, err)
	require.Subset(t, family, []int{os.Getpid(), child.Process.Pid})
	require.Empty(t, stopped(child.Process.Pid))
	require.NoError(t, syscall.Kill(child.Process.Pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool { return stopped(child.Process.Pid) != "" }, 10*time.Second, time.Millisecond)
	family, err = Family(1 << 30)
	require.NoError(t, err)
	require.Empty(t, family)
}
