package shm

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const childArgument = "shm-test-child"

func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] == childArgument {
		child()
		return
	}
	os.Exit(m.Run())
}

var childSizes = []int{20, 2000, ring.LeaseBytes}

// child joins two sessions with the process whose address it reads from its input, sends on the
// first session, and then does what it reads: "exit N"; "hold", to have another process inherit its
// sockets; "leave", to leave the first session after some control messages. It lives until its
// input ends.
func child() {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	f, err := New(Options{PoolBytes: 1 << 20})
	check(err)
	fmt.Println(hex.EncodeToString(f.Address()))
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	parent, err := hex.DecodeString(in.Text())
	check(err)
	var links [2]transport.Link
	for i := range links {
		links[i], err = f.Connect(ctx, parent, session(i, 7, 3, 1))
		check(err)
	}
	for i, n := range childSizes {
		space := links[0].Channel(0).Reserve(n)
		for k := range space {
			space[k] = byte(i)
		}
		links[0].Channel(0).Commit(n, &transport.Meta{uint64(n)})
	}
	fmt.Println("ready")
	for in.Scan() {
		switch what, status, _ := strings.Cut(in.Text(), " "); what {
		case "exit":
			n, err := strconv.Atoi(status)
			check(err)
			os.Exit(n)
		case "hold":
			fmt.Println(hold(f, links[0].(*link).process))
		case "leave":
			for range childSays {
				links[0].Tell([]byte("said"))
			}
			links[0].Leave([]byte("because"))
			links[0].(*link).process.linger(time.Now().Add(span))
			fmt.Println("left")
		}
	}
}

const childSays = 20

// hold starts a process that has copies of the sockets, as a forked child would have, and returns
// its number.
func hold(f *Fabric, p *process) int {
	listen, err := f.listen.File()
	check(err)
	conn, err := p.conn.File()
	check(err)
	holder := exec.Command("sleep", "60")
	holder.ExtraFiles = []*os.File{listen, conn}
	check(holder.Start())
	return holder.Process.Pid
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// doomed is a child as its parent sees it.
type doomed struct {
	cmd     *exec.Cmd
	in      io.Writer
	out     *bufio.Reader
	address []byte
	links   [2]transport.Link
}

// startChild starts a child that is linked to f. control handles its control messages.
func startChild(t *testing.T, f *Fabric, control func([]byte)) *doomed {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	c := &doomed{cmd: exec.Command(program, childArgument)}
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	c.out = bufio.NewReader(out)
	c.address, err = hex.DecodeString(c.says(t))
	require.NoError(t, err)
	fmt.Fprintln(c.in, hex.EncodeToString(f.Address()))
	for i := range c.links {
		s := session(i, 3, 7, 1)
		s.Control = control
		c.links[i], err = f.Connect(within(t), c.address, s)
		require.NoError(t, err)
	}
	require.Equal(t, "ready", c.says(t))
	return c
}

// says returns the next line that the child prints.
func (c *doomed) says(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// held has a process inherit the child's sockets until the returned function is called, or the test
// ends.
func (c *doomed) held(t *testing.T) (end func()) {
	t.Helper()
	fmt.Fprintln(c.in, "hold")
	pid, err := strconv.Atoi(c.says(t))
	require.NoError(t, err)
	holder := sync.OnceFunc(func() { unix.Kill(pid, unix.SIGKILL) })
	t.Cleanup(holder)
	return holder
}

// story is a part of the message about the child's end.
func (c *doomed) story(how string) string {
	return fmt.Sprintf("shm: process %d on this host %s", c.cmd.Process.Pid, how)
}

// TestHowAPeerEnds ends a process in several ways. Its links say how it ended, at once although
// another process holds its sockets, and whether or not its parent has taken note.
func TestHowAPeerEnds(t *testing.T) {
	signal := func(s os.Signal) func(*doomed) { return func(c *doomed) { c.cmd.Process.Signal(s) } }
	exit := func(status int) func(*doomed) { return func(c *doomed) { fmt.Fprintln(c.in, "exit", status) } }
	for _, tt := range []struct {
		name string
		end  func(*doomed)
		how  string
	}{
		{"killed", signal(unix.SIGKILL), "was killed by signal 9 (SIGKILL)"},
		{"terminated", signal(unix.SIGTERM), "was killed by signal 15 (SIGTERM)"},
		{"failed", exit(3), "has exited with status 3"},
		{"exited", exit(0), "has exited with status 0"},
	} {
		for _, held := range []bool{false, true} {
			for _, reaped := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/held %v/reaped %v", tt.name, held, reaped), func(t *testing.T) {
					f := newFabric(t)
					c := startChild(t, f, nil)
					if held {
						c.held(t)
					}
					began := time.Now()
					tt.end(c)
					if reaped {
						c.cmd.Wait()
					}
					eventually(t, "the links go on", func() bool { return c.links[1].Err() != nil })
					require.ErrorIs(t, c.links[1].Err(), fault.PeerLost)
					require.ErrorContains(t, c.links[1].Err(), c.story(tt.how))
					require.Equal(t, c.links[1].Err().(*fault.Error).Text, c.story(tt.how))
					_, err := f.Connect(within(t), c.address, session(9, 3, 7, 1))
					require.ErrorIs(t, err, fault.PeerLost)
					// The holder lives for a minute. With the race detector an exit takes a second.
					require.Less(t, time.Since(began), 3*time.Second)
				})
			}
		}
	}
}

// TestBlind has a kernel that tells nothing of processes: the end of the connection is all that is
// known, and comes when the last process that holds it has ended.
func TestBlind(t *testing.T) {
	f, err := New(Options{PoolBytes: 4 << 20, blind: true})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	c := startChild(t, f, nil)
	end := c.held(t)
	require.NoError(t, c.cmd.Process.Kill())
	c.cmd.Wait()
	time.Sleep(50 * time.Millisecond) // for news that must not come
	require.NoError(t, c.links[0].Err())
	end()
	eventually(t, "the links go on", func() bool { return c.links[0].Err() != nil })
	require.ErrorIs(t, c.links[0].Err(), fault.PeerLost)
	require.ErrorContains(t, c.links[0].Err(), c.story("has ended or broken its connection"))
}

// TestAliveButBroken has a peer close its connection and live on.
func TestAliveButBroken(t *testing.T) {
	a, b := newFabric(t), newFabric(t)
	la, lb := connect(t, a, b, 1, 1)
	lb.(*link).process.close()
	eventually(t, "the link goes on", func() bool { return la.Err() != nil })
	require.ErrorIs(t, la.Err(), fault.PeerLost)
	require.ErrorContains(t, la.Err(),
		fmt.Sprintf("process %d on this host has broken its connection, but is alive", os.Getpid()))
}

// TestLastWords has a process die while all that it has said waits to be read, and its connection
// stays open: its messages are handled, and its links end as they say, before the others are lost.
func TestLastWords(t *testing.T) {
	f := newFabric(t)
	var heard atomic.Int32
	c := startChild(t, f, func([]byte) { heard.Add(1) })
	c.held(t)
	p := c.links[0].(*link).process
	func() {
		f.mu.Lock() // so that the reader stops at the first message
		defer f.mu.Unlock()
		fmt.Fprintln(c.in, "leave")
		require.Equal(t, "left", c.says(t))
		require.NoError(t, c.cmd.Process.Kill())
		<-p.life.over
		eventually(t, "the connection is not ended", func() bool {
			fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLRDHUP}}
			n, _ := unix.Poll(fds, 0)
			return n > 0
		})
		require.Zero(t, heard.Load())
	}()
	eventually(t, "the links go on", func() bool { return c.links[1].Err() != nil })
	require.ErrorContains(t, c.links[1].Err(), c.story("was killed by signal 9 (SIGKILL)"))
	require.EqualValues(t, childSays, heard.Load())
	var left *fault.Error
	require.ErrorAs(t, c.links[0].Err(), &left)
	require.Equal(t, fault.PeerLeft, left.Code)
	require.Equal(t, "because", string(left.Left))
}

// TestStatus asks for the status of a process before and after its parent has waited for it.
func TestStatus(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 3")
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Skipf("the kernel has no pidfd: %v", err)
	}
	defer unix.Close(fd)
	eventually(t, "it does not end", func() bool { return ended(uintptr(fd)) })
	status, known := zombieStatus(fd, cmd.Process.Pid)
	require.True(t, known)
	require.Equal(t, 3, status.ExitStatus())
	_, known = zombieStatus(fd, os.Getpid())
	require.False(t, known, "of a process that has not ended")
	_, known = reapedStatus(fd)
	require.False(t, known)
	cmd.Wait()
	_, known = zombieStatus(fd, cmd.Process.Pid)
	require.False(t, known)
	if status, known = reapedStatus(fd); known { // from Linux 6.15 on
		require.Equal(t, 3, status.ExitStatus())
	}
}

// TestNothingIsLeftOfPeers has a hundred peers come and go.
func TestNothingIsLeftOfPeers(t *testing.T) {
	a, first := newFabric(t), newFabric(t)
	connect(t, a, first, 0, 1)
	before, goroutines := holdingsNow(t), runtime.NumGoroutine()
	for i := range 100 {
		b, err := New(Options{PoolBytes: 1 << 20})
		require.NoError(t, err)
		la, lb := connect(t, a, b, 1+i, 1)
		require.NoError(t, la.Close())
		require.NoError(t, lb.Close())
		require.NoError(t, b.Close())
	}
	eventually(t, "descriptors or goroutines stay", func() bool {
		return holdingsNow(t).descriptors <= before.descriptors && runtime.NumGoroutine() <= goroutines
	})
}

// TestTrack counts the sockets that a forked child would have to close.
func TestTrack(t *testing.T) {
	var mu sync.Mutex
	open := map[int]int{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(open)
	}
	tracked := func() *Fabric {
		f, err := New(Options{PoolBytes: 1 << 20, Track: func(fd int, now bool) {
			mu.Lock()
			defer mu.Unlock()
			if now {
				open[fd]++
			} else if open[fd]--; open[fd] == 0 {
				delete(open, fd)
			}
		}})
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := tracked(), tracked()
	require.Equal(t, 2, count())
	connect(t, a, b, 1, 1)
	require.Equal(t, 2+2, count())
	mu.Lock()
	for fd, n := range open {
		require.Equal(t, 1, n)
		_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		require.NoError(t, err)
	}
	mu.Unlock()
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Zero(t, count())
}

// TestKilledPeer kills a process with SIGKILL. Its links report that within a second, sleepers
// wake, the fragments it had sent can be read, and none of its memory stays.
func TestKilledPeer(t *testing.T) {
	for range 2 { // the ids are random: in most runs each side dials once
		f := newFabric(t)
		before := holdingsNow(t)
		c := startChild(t, f, nil)
		links := c.links
		require.NoError(t, links[0].Err())

		woken := make(chan bool, 1)
		announced := make(chan struct{})
		go func() {
			ticket := f.Doorbell().Prepare()
			close(announced)
			failed := func() bool { return links[0].Err() != nil && links[1].Err() != nil }
			for deadline := time.Now().Add(span); !failed() &&
				time.Now().Before(deadline); ticket = f.Doorbell().Prepare() {
				f.Doorbell().Sleep(ticket, time.Until(deadline))
			}
			f.Doorbell().Cancel()
			woken <- failed()
		}()
		<-announced
		require.NoError(t, c.cmd.Process.Kill())
		killed := time.Now()
		require.True(t, <-woken, "nobody rang for the sleeper")
		require.Less(t, time.Since(killed), time.Second)
		c.cmd.Wait()
		for _, l := range links {
			var e *fault.Error
			require.ErrorAs(t, l.Err(), &e)
			require.Equal(t, fault.PeerLost, e.Code)
			require.Equal(t, 7, e.Peer)
			require.ErrorContains(t, e, c.story("was killed by signal 9 (SIGKILL)"))
		}
		for i, n := range childSizes {
			receive(t, links[0].Channel(0), n, byte(i))
		}
		_, _, ok := links[0].Channel(0).Peek()
		require.False(t, ok)
		send(t, links[1].Channel(0), ring.LeaseBytes, 1) // leads nowhere and does no harm

		_, err := f.Connect(within(t), c.address, session(9, 3, 7, 1))
		require.ErrorIs(t, err, fault.PeerLost)
		for _, l := range links {
			require.NoError(t, l.Close())
		}
		after := holdingsNow(t)
		require.Equal(t, before.rings, after.rings)
		require.Equal(t, before.doorbells, after.doorbells)
		require.Equal(t, before.pools+1, after.pools) // its own
		require.Equal(t, 4<<20/ring.LeaseBytes, f.pool.Free())
		require.NoError(t, f.Close())
		require.Less(t, holdingsNow(t).descriptors, before.descriptors)
	}
}
