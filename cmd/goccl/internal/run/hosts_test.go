package run

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

// twoPorts returns a port that is free, and so is the one after it. It is none of those that the
// system gives to others, as to the tests of other packages that run meanwhile.
func twoPorts(t *testing.T) int {
	for range 100 {
		port := 20_000 + rand.IntN(6_000)*2
		if free(port) && free(port+1) {
			return port
		}
	}
	t.Fatal("no two ports are free")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", (&net.TCPAddr{Port: port}).String())
	if err == nil {
		l.Close()
	}
	return err == nil
}

// launchers runs a script by launchers of several hosts, which are all this one, and returns what
// each says, after how long.
func launchers(t *testing.T, n int, script string, change func(l *launch)) (errs []error, took []time.Duration) {
	t.Helper()
	port := twoPorts(t)
	errs, took = make([]error, n), make([]time.Duration, n)
	var group sync.WaitGroup
	begun := time.Now()
	for host := range n {
		l := &launch{ranks: 1, hosts: n, host: host, address: "localhost", port: port, grace: time.Second,
			command: []string{"sh", "-c", script}, err: os.Stderr}
		if change != nil {
			change(l)
		}
		group.Go(func() {
			errs[host] = withStatus(l.start())
			took[host] = time.Since(begun)
		})
	}
	group.Wait()
	return errs, took
}

// TestHostsFail has the rank of one host fail, or its command be missing: the launchers of all
// hosts end, with the same status, and say where.
func TestHostsFail(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		status int
		change func(l *launch)
		says   string
	}{
		"a rank": {`if test $RANK = 2; then sleep 0.2; exit 42; fi; sleep 1000`, 42, nil, "exit status 42"},
		"on host 0": {`if test $RANK = 0; then sleep 0.2; exit 42; fi; trap "" TERM; while :; do sleep 0.1; done`, 42, nil,
			"exit status 42"},
		"no command": {`sleep 1000`, 127, func(l *launch) {
			if l.host == 1 {
				l.command = []string{"/no/such/command"}
			}
		}, "host 1: rank 1 cannot be started"},
		"killed": {`if test $RANK = 3; then kill -9 $$; fi; sleep 1000`, 137, nil, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs, took := launchers(t, 4, test.script, test.change)
			for host, err := range errs {
				require.Equal(t, test.status, cli.Status(err), "host %d: %v", host, err)
				require.Contains(t, err.Error(), strings.TrimPrefix(test.says, "host 1: "), "host %d", host)
				require.Less(t, took[host], missSpan, "host %d", host)
			}
		})
	}
}

// TestHostsEndWell has the ranks of host 0 end first: its launcher stays, and so a later failure is
// told to all.
func TestHostsEndWell(t *testing.T) {
	errs, _ := launchers(t, 3, `sleep 0.$RANK`, nil)
	require.Equal(t, []error{nil, nil, nil}, errs)
	errs, _ = launchers(t, 3, `test $RANK = 0 && exit 0; sleep 0.3; test $RANK = 1 && exit 9; sleep 1000`, nil)
	for host, err := range errs {
		require.Equal(t, 9, cli.Status(err), "host %d: %v", host, err)
	}
}

// TestHostsFailTogether has the ranks of all hosts fail at about the same time: all launchers end
// with the status of the same one.
func TestHostsFailTogether(t *testing.T) {
	for range 5 {
		errs, took := launchers(t, 4, `sleep 0.3; exit $((10 + RANK))`, nil)
		for host, err := range errs {
			require.Equal(t, cli.Status(errs[0]), cli.Status(err), "host %d: %v", host, err)
			require.Less(t, took[host], missSpan, "host %d", host)
		}
		require.GreaterOrEqual(t, cli.Status(errs[0]), 10)
	}
}

// TestHostsRecover has the others go on with --recover.
func TestHostsRecover(t *testing.T) {
	errs, _ := launchers(t, 2, `test $RANK = 1 && exit 9; sleep 0.3`, func(l *launch) { l.recover = true })
	require.NoError(t, errs[0])
	require.Equal(t, 9, cli.Status(errs[1]))
}

// TestHostComesLate has a host come when another one has failed already.
func TestHostComesLate(t *testing.T) {
	for late := range 2 {
		port, failed := twoPorts(t), filepath.Join(t.TempDir(), "failed")
		errs := make([]error, 2)
		var group sync.WaitGroup
		for _, host := range []int{1 - late, late} {
			l := &launch{ranks: 1, hosts: 2, host: host, address: "localhost", port: port, grace: time.Second,
				command: []string{"sh", "-c", fmt.Sprintf("test $RANK = %d || { echo > %s; exit 9; }; sleep 1000", late, failed)},
				err:     os.Stderr}
			group.Go(func() { errs[host] = withStatus(l.start()) })
			require.Eventually(t, func() bool { _, err := os.Stat(failed); return err == nil },
				10*time.Second, time.Millisecond)
		}
		group.Wait()
		for host, err := range errs {
			require.Equal(t, 9, cli.Status(err), "host %d: %v", host, err)
		}
	}
}

// TestHostsSecret has launchers of another job come to the port: they are sent away, and each job
// fares as if it was alone.
func TestHostsSecret(t *testing.T) {
	port := twoPorts(t)
	folder := t.TempDir()
	meet := func(host, size int, secret string) *hosts {
		t.Setenv("GOCCL_SECRET_FILE", "")
		if secret != "" {
			file := filepath.Join(folder, secret)
			require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
			t.Setenv("GOCCL_SECRET_FILE", file)
		}
		h, err := meetHosts(host, size, "localhost", port, func(text string) { t.Log(text) })
		require.NoError(t, err)
		t.Cleanup(h.close)
		return h
	}
	hub := meet(0, 3, "ours")
	friend := meet(1, 3, "ours")
	met := func(h *hosts, host int) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.met[host]
	}
	require.Eventually(t, func() bool { return met(hub, 1) && met(friend, 0) }, 10*time.Second, time.Millisecond)
	for _, stranger := range []*hosts{{self: 2, size: 3, secret: []byte("theirs")},
		{self: 2, size: 4, secret: []byte("ours")}, {self: 7, size: 3, secret: []byte("ours")}} {
		stranger.ctx, stranger.address = t.Context(), hub.address
		_, err := stranger.dial()
		require.Error(t, err)
	}
	for _, words := range []string{"GET / HTTP/1.1\n\n", `{"host":2,"hosts":3,"proof":"00"}` + "\n",
		strings.Repeat("x", mostLetter+1)} {
		conn, err := net.Dial("tcp", hub.address)
		require.NoError(t, err)
		conn.Write([]byte(words))
		conn.Close()
	}
	require.False(t, met(hub, 2))
	friend.tell(cli.Ended{Err: os.ErrInvalid, Status: 3})
	require.Equal(t, 3, (<-hub.failed).Status)

	t.Setenv("GOCCL_SECRET_FILE", filepath.Join(folder, "nothing"))
	_, err := meetHosts(1, 2, "localhost", port, nil)
	require.ErrorContains(t, err, "GOCCL_SECRET_FILE")
}

// twoLaunchers returns those of two hosts, which are meeting.
func twoLaunchers(t *testing.T) (hub, other *hosts) {
	t.Helper()
	port := twoPorts(t)
	both := make([]*hosts, 2)
	for host := range both {
		h, err := meetHosts(host, 2, "localhost", port, nil)
		require.NoError(t, err)
		t.Cleanup(h.close)
		both[host] = h
	}
	return both[0], both[1]
}

// TestHostIsLost breaks the connection of a launcher: it comes again. Then it goes without a word:
// the job is over.
func TestHostIsLost(t *testing.T) {
	t.Parallel()
	hub, other := twoLaunchers(t)
	there := func() *lane {
		hub.mu.Lock()
		defer hub.mu.Unlock()
		return hub.conns[1]
	}
	require.Eventually(t, func() bool { return there() != nil }, 10*time.Second, time.Millisecond)
	first := there()
	first.conn.Close()
	require.Eventually(t, func() bool { l := there(); return l != nil && l != first }, 10*time.Second, time.Millisecond)
	other.close()
	select {
	case f := <-hub.failed:
		require.Equal(t, failure{"the launcher of host 1 is gone", 1}, f)
	case <-time.After(3 * missSpan):
		t.Fatal("nobody has noticed")
	}
}

// wire passes on what two ends say, but while it is held.
type wire struct{ held sync.Mutex }

// through returns the address of a wire to another one.
func (w *wire) through(t *testing.T, to string) string {
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go w.pass(near, far)
			go w.pass(far, near)
		}
	}()
	return listener.Addr().String()
}

func (w *wire) pass(from, to net.Conn) {
	defer to.(*net.TCPConn).CloseWrite()
	for p := make([]byte, 4096); ; {
		n, err := from.Read(p)
		if err != nil {
			return
		}
		w.held.Lock()
		_, err = to.Write(p[:n])
		w.held.Unlock()
		if err != nil {
			return
		}
	}
}

// TestHostIsCutOff has the ranks of two hosts fail while nothing passes between them: the launcher
// of host 0 stays until the other one knows which failure counts.
func TestHostIsCutOff(t *testing.T) {
	t.Parallel()
	port, w := twoPorts(t), &wire{}
	hub, err := meetHosts(0, 2, "localhost", port, nil)
	require.NoError(t, err)
	other := newHosts(1, 2, w.through(t, hub.address), nil, nil)
	other.ended.Go(other.reach)
	met := func() bool {
		hub.mu.Lock()
		defer hub.mu.Unlock()
		return hub.met[1]
	}
	require.Eventually(t, met, 10*time.Second, time.Millisecond)
	w.held.Lock()
	hub.tell(cli.Ended{Err: os.ErrInvalid, Status: 137})
	other.tell(cli.Ended{Err: os.ErrInvalid, Status: 1})
	left := make(chan *failure, 1)
	go func() {
		why := hub.stay(nil)
		hub.close()
		left <- why
	}()
	select {
	case <-left:
		t.Fatal("host 0 left before the other one had heard")
	case <-time.After(100 * time.Millisecond):
	}
	w.held.Unlock()
	why := other.stay(nil)
	other.close()
	require.NotNil(t, why)
	require.Equal(t, 137, why.Status)
	require.Nil(t, <-left)
}

// TestHostsSignal has the launcher of host 0 get SIGTERM when its ranks have ended and it waits for
// the others.
func TestHostsSignal(t *testing.T) {
	hub, other := twoLaunchers(t)
	l := &launch{ranks: 1, hosts: 2, grace: time.Second, command: []string{"true"}}
	signals, done := make(chan os.Signal), make(chan error)
	go func() { done <- l.all(signals, hub) }()
	require.Eventually(t, func() bool { return other.left(0) }, 10*time.Second, time.Millisecond)
	signals <- syscall.SIGTERM
	require.NoError(t, <-done)
}
